//! A hash index whose buckets are cache lines: a lookup loads one of them and compares all its keys without a branch, so
//! that the lookups of many keys wait for memory side by side.

/// A key as buckets hold it.
pub(super) trait Key: Copy + PartialEq {
    /// The mark of places without a key.
    const VACANT: Self;
}

/// A bucket: keys from the first place on, with a number each. Together they fill a cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Bucket<K, const N: usize> {
    keys: [K; N],
    values: [u64; N],
}

impl<K: Key, const N: usize> Bucket<K, N> {
    const EMPTY: Bucket<K, N> = Bucket { keys: [K::VACANT; N], values: [0; N] };

    /// The place of the key that `is` recognizes. All are compared: where a search would end cannot be predicted, and costs
    /// more than the comparisons.
    #[inline(always)]
    fn place(&self, is: impl Fn(&K) -> bool) -> Option<usize> {
        let mut hits = 0;
        for (place, key) in self.keys.iter().enumerate() {
            hits |= u32::from(is(key)) << place;
        }
        (hits != 0).then(|| hits.trailing_zeros() as usize % N)
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.keys[N - 1] != K::VACANT
    }

    fn len(&self) -> usize {
        self.keys.iter().take_while(|key| **key != K::VACANT).count()
    }
}

/// Keys with a number each. A key stands in the bucket that its hash names or, where that and those after it are full,
/// in the first one that was not. At least half of all places are vacant.
pub(super) struct Buckets<K, const N: usize> {
    /// As many as a power of two.
    buckets: Vec<Bucket<K, N>>,
    len: usize,
}

impl<K: Key, const N: usize> Buckets<K, N> {
    pub(super) fn new() -> Buckets<K, N> {
        Buckets { buckets: vec![Bucket::EMPTY], len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn wrapped(&self, number: usize) -> usize {
        number & (self.buckets.len() - 1)
    }

    /// The number of the key with this hash that `is` recognizes.
    #[inline(always)]
    pub(super) fn get(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<u64> {
        let mut at = self.wrapped(hash as usize);
        loop {
            let bucket = &self.buckets[at];
            if let Some(place) = bucket.place(&is) {
                return Some(bucket.values[place]);
            }
            if !bucket.is_full() {
                return None;
            }
            at = self.wrapped(at + 1);
        }
    }

    /// The bucket and the place of the key with this hash that `is` recognizes.
    #[inline(always)]
    fn place(&self, hash: u64, is: impl Fn(&K) -> bool) -> Option<(usize, usize)> {
        let mut at = self.wrapped(hash as usize);
        loop {
            let bucket = &self.buckets[at];
            if let Some(place) = bucket.place(&is) {
                return Some((at, place));
            }
            if !bucket.is_full() {
                return None;
            }
            at = self.wrapped(at + 1);
        }
    }

    /// The number of a key that is there, to be changed.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, hash: u64, is: impl Fn(&K) -> bool) -> Option<&mut u64> {
        let (at, place) = self.place(hash, is)?;
        Some(&mut self.buckets[at].values[place])
    }

    /// Adds a key that is not there. `hash_of` gives the hash of any key.
    pub(super) fn add(&mut self, hash: u64, key: K, value: u64, hash_of: impl Fn(&K) -> u64) {
        self.reserve(1, hash_of);
        self.put(hash, key, value);
        self.len += 1;
    }

    fn put(&mut self, hash: u64, key: K, value: u64) {
        let mut at = self.wrapped(hash as usize);
        while self.buckets[at].is_full() {
            at = self.wrapped(at + 1);
        }
        let bucket = &mut self.buckets[at];
        let place = bucket.len();
        (bucket.keys[place], bucket.values[place]) = (key, value);
    }

    /// Makes place for more keys.
    pub(super) fn reserve(&mut self, more: usize, hash_of: impl Fn(&K) -> u64) {
        let places = 2 * (self.len + more);
        if places <= self.buckets.len() * N {
            return;
        }
        let count = places.div_ceil(N).next_power_of_two();
        let old = std::mem::replace(&mut self.buckets, vec![Bucket::EMPTY; count]);
        for bucket in old {
            for (key, value) in bucket.keys.iter().zip(bucket.values).take(bucket.len()) {
                self.put(hash_of(key), *key, value);
            }
        }
    }

    /// Removes a key and returns it with its number.
    pub(super) fn remove(
        &mut self,
        hash: u64,
        is: impl Fn(&K) -> bool,
        hash_of: impl Fn(&K) -> u64,
    ) -> Option<(K, u64)> {
        let (mut at, mut place) = self.place(hash, is)?;
        let removed = (self.buckets[at].keys[place], self.buckets[at].values[place]);
        self.len -= 1;
        loop {
            let bucket = &mut self.buckets[at];
            let was_full = bucket.is_full();
            let last = bucket.len() - 1;
            (bucket.keys[place], bucket.values[place]) = (bucket.keys[last], bucket.values[last]);
            bucket.keys[last] = K::VACANT;
            if !was_full {
                return Some(removed);
            }
            // Lookups end at a bucket that is not full: a key after it that they pass it for takes the place.
            let Some((from, moved)) = self.passing(at, &hash_of) else { return Some(removed) };
            let (key, value) = (self.buckets[from].keys[moved], self.buckets[from].values[moved]);
            let bucket = &mut self.buckets[at];
            (bucket.keys[last], bucket.values[last]) = (key, value);
            (at, place) = (from, moved);
        }
    }

    /// The first key in a later bucket that is there because this one was full: its bucket and place.
    fn passing(&self, at: usize, hash_of: impl Fn(&K) -> u64) -> Option<(usize, usize)> {
        let mut next = self.wrapped(at + 1);
        loop {
            let bucket = &self.buckets[next];
            let distance = self.wrapped(next.wrapping_sub(at));
            let passes = |key: &K| {
                *key != K::VACANT && self.wrapped(next.wrapping_sub(hash_of(key) as usize)) >= distance
            };
            if let Some(place) = bucket.keys.iter().position(passes) {
                return Some((next, place));
            }
            if !bucket.is_full() {
                return None;
            }
            next = self.wrapped(next + 1);
        }
    }

    /// All keys with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, u64)> {
        self.buckets.iter().flat_map(|bucket| bucket.keys.iter().zip(bucket.values).take(bucket.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    impl Key for u16 {
        const VACANT: u16 = u16::MAX;
    }

    #[test]
    fn it_agrees_with_a_map_whatever_the_hashes() {
        // From one bucket for all keys to none that collide.
        for spread in [0, 1, 3, 0xffff] {
            let hash_of = |key: &u16| u64::from(key.wrapping_mul(spread));
            let (mut buckets, mut map) = (Buckets::<u16, 4>::new(), HashMap::new());
            let mut draw = 1u32;
            for round in 0..4000u64 {
                draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (key, adds) = ((draw >> 16) as u16 % 200, draw >> 8 & 3 > 0 && round < 3000);
                let hash = hash_of(&key);
                if !adds {
                    let removed = buckets.remove(hash, |k| *k == key, hash_of);
                    assert_eq!(removed.map(|(_, value)| value), map.remove(&key));
                } else if let Some(value) = buckets.get_mut(hash, |k| *k == key) {
                    *value = round;
                    map.insert(key, round);
                } else {
                    buckets.add(hash, key, round, hash_of);
                    map.insert(key, round);
                }
                assert_eq!(buckets.len(), map.len());
                for key in (0..200).step_by(17) {
                    assert_eq!(buckets.get(hash_of(&key), |k| *k == key), map.get(&key).copied());
                }
            }
            let mut all: Vec<(u16, u64)> = buckets.iter().map(|(key, value)| (*key, value)).collect();
            let mut expected: Vec<(u16, u64)> = map.into_iter().collect();
            all.sort_unstable();
            expected.sort_unstable();
            assert_eq!(all, expected);
        }
    }
}
