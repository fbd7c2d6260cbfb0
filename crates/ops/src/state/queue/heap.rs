//! Elements by priority. Equal priorities leave in the order in which stock's binary heap gives them out, which is
//! neither that of arrival nor random: the same programs give the same answers.

/// A binary heap with the smallest key on top.
#[derive(Default)]
pub(super) struct Heap<T> {
    entries: Vec<(i64, T)>,
}

impl<T> Heap<T> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn push(&mut self, key: i64, value: T) {
        self.entries.push((key, value));
        self.rise(self.entries.len() - 1);
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let last = self.entries.len().checked_sub(1)?;
        self.entries.swap(0, last);
        let (_, top) = self.entries.pop()?;
        // The entry that took the top's place goes down to a leaf, always past the smaller child, and from there up to
        // where it belongs. Of equal children the right one moves up.
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let child = match (self.entries.get(left), self.entries.get(right)) {
                (Some(left_entry), Some(right_entry)) if left_entry.0 < right_entry.0 => left,
                (Some(_), Some(_)) => right,
                (Some(_), None) => left,
                (None, _) => break,
            };
            self.entries.swap(at, child);
            at = child;
        }
        self.rise(at);
        Some(top)
    }

    /// Moves an entry up past every larger key.
    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.entries[parent].0 <= self.entries[at].0 {
                break;
            }
            self.entries.swap(parent, at);
            at = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Heap;

    #[test]
    fn smaller_keys_leave_first() {
        let mut heap = Heap::default();
        let keys = [5, -1, 3, 3, 9, 0, 3, 7, -4, 5];
        keys.iter().for_each(|key| heap.push(*key, *key));
        let popped: Vec<i64> = std::iter::from_fn(|| heap.pop()).collect();
        assert!(popped.is_sorted(), "{popped:?}");
        assert_eq!((popped.len(), heap.len()), (keys.len(), 0));
    }
}
