//! Texts that are keys of tables, each with a number: the bits of its value, or the row that has it. Texts of up to sixteen
//! bytes stand in the index itself: comparing one follows no pointer, and adding one allocates nothing.

use super::buckets::{Buckets, Key};
use ferroflow_core::kernel::Str;
use foldhash::fast::RandomState;
use std::hash::BuildHasher;

/// Both halves of a product as one word: a hash that costs one multiplication.
#[inline(always)]
fn folded(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    product as u64 ^ (product >> 64) as u64
}

/// Words that nobody outside can know: keys that collide in one table do not in another.
fn seed() -> [u64; 2] {
    let state = RandomState::default();
    [state.hash_one(1u64), state.hash_one(2u64) | 1]
}

/// A text as a key. One of up to sixteen bytes is its bytes, zeros after them; of a longer one the words are its hash and
/// its place among the long ones.
#[derive(Clone, Copy, PartialEq)]
struct Words {
    first: u64,
    second: u64,
    length: u64,
}

impl Key for Words {
    const VACANT: Words = Words { first: 0, second: 0, length: u64::MAX };
}

/// The longest text that stands in the index.
const SHORT: usize = 16;

impl Words {
    /// A text of at most sixteen bytes. The reads of its beginning and of its end overlap where it is shorter than both.
    #[inline(always)]
    fn short(text: &[u8]) -> Words {
        let length = text.len();
        let (first, second) = match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
            (Some(start), Some(end)) => {
                let end = u128::from(u64::from_le_bytes(*end)) << (8 * (length - 8));
                (u64::from_le_bytes(*start), (end >> 64) as u64)
            }
            _ => match (text.first_chunk::<4>(), text.last_chunk::<4>()) {
                (Some(start), Some(end)) => {
                    let end = u64::from(u32::from_le_bytes(*end)) << (8 * (length - 4));
                    (u64::from(u32::from_le_bytes(*start)) | end, 0)
                }
                _ => {
                    let byte = |at: usize| text.get(at).map_or(0, |byte| u64::from(*byte) << (8 * at));
                    (byte(0) | byte(1) | byte(2), 0)
                }
            },
        };
        Words { first, second, length: length as u64 }
    }

    fn is_short(&self) -> bool {
        self.length <= SHORT as u64
    }

    fn hash(&self, seed: &[u64; 2]) -> u64 {
        if self.is_short() { folded(self.first ^ seed[0], self.second ^ seed[1]) } else { self.first }
    }
}

/// Texts.
pub(super) struct Texts {
    buckets: Buckets<Words, 2>,
    /// Texts that are too long for the index, and places among them that are free.
    long: Vec<Str>,
    free: Vec<usize>,
    seed: [u64; 2],
    state: RandomState,
}

impl Texts {
    pub(super) fn new() -> Texts {
        Texts {
            buckets: Buckets::new(),
            long: Vec::new(),
            free: Vec::new(),
            seed: seed(),
            state: RandomState::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    pub(super) fn reserve(&mut self, more: usize) {
        let seed = self.seed;
        self.buckets.reserve(more, |key| key.hash(&seed));
    }

    #[inline(always)]
    pub(super) fn get(&self, text: &[u8]) -> Option<u64> {
        if text.len() <= SHORT {
            let key = Words::short(text);
            return self.buckets.get(key.hash(&self.seed), |other| *other == key);
        }
        self.get_long(text)
    }

    #[inline(never)]
    fn get_long(&self, text: &[u8]) -> Option<u64> {
        let hash = self.state.hash_one(text);
        self.buckets.get(hash, is_long(&self.long, hash, text))
    }

    /// Sets the number of a key, which is added if it is not there.
    #[inline(always)]
    pub(super) fn set(&mut self, text: &Str, value: u64) {
        let old = if text.len() <= SHORT {
            let key = Words::short(text);
            self.buckets.get_mut(key.hash(&self.seed), |other| *other == key)
        } else {
            let hash = self.state.hash_one(&text[..]);
            self.buckets.get_mut(hash, is_long(&self.long, hash, text))
        };
        match old {
            Some(old) => *old = value,
            None => self.add(text, false, value),
        }
    }

    /// Adds a key that is not there. A long one is kept as it is if it may be `shared`, and is copied otherwise: a slice
    /// keeps all of the message that it came in.
    pub(super) fn add(&mut self, text: &Str, shared: bool, value: u64) {
        let key = if text.len() <= SHORT {
            Words::short(text)
        } else {
            let first = self.state.hash_one(&text[..]);
            let kept = if shared { text.clone() } else { Str::copy_from_slice(text) };
            let second = match self.free.pop() {
                Some(place) => {
                    self.long[place] = kept;
                    place
                }
                None => {
                    self.long.push(kept);
                    self.long.len() - 1
                }
            };
            Words { first, second: second as u64, length: text.len() as u64 }
        };
        let seed = self.seed;
        self.buckets.add(key.hash(&seed), key, value, |key| key.hash(&seed));
    }

    pub(super) fn remove(&mut self, text: &[u8]) -> Option<u64> {
        let seed = self.seed;
        let hash_of = |key: &Words| key.hash(&seed);
        if text.len() <= SHORT {
            let key = Words::short(text);
            let (_, value) = self.buckets.remove(key.hash(&seed), |other| *other == key, hash_of)?;
            return Some(value);
        }
        let hash = self.state.hash_one(text);
        let (key, value) = self.buckets.remove(hash, is_long(&self.long, hash, text), hash_of)?;
        self.long[key.second as usize] = Str::new();
        self.free.push(key.second as usize);
        Some(value)
    }

    /// All keys and their numbers. Those from the index are slices of one text.
    pub(super) fn all(&self) -> (Vec<Str>, Vec<u64>) {
        let mut bytes = Vec::with_capacity(self.len() * SHORT);
        for (key, _) in self.buckets.iter().filter(|(key, _)| key.is_short()) {
            bytes.extend_from_slice(&key.first.to_le_bytes());
            bytes.extend_from_slice(&key.second.to_le_bytes());
        }
        let (bytes, mut at) = (Str::from(bytes), 0);
        let text = |(key, value): (&Words, u64)| {
            if !key.is_short() {
                return (self.long[key.second as usize].clone(), value);
            }
            at += SHORT;
            (bytes.slice(at - SHORT..at - SHORT + key.length as usize), value)
        };
        self.buckets.iter().map(text).unzip()
    }
}

/// Recognizes the key of a long text.
#[inline(always)]
fn is_long<'a>(long: &'a [Str], hash: u64, text: &'a [u8]) -> impl Fn(&Words) -> bool + 'a {
    move |key| key.length == text.len() as u64 && key.first == hash && long[key.second as usize][..] == *text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn texts_of_all_lengths_are_told_apart() {
        let source: Vec<u8> = (0..40).collect();
        let mut texts: Vec<Str> = (0..40).map(|length| Str::copy_from_slice(&source[..length])).collect();
        // The same with other ends, with zeros at the end, and nothing but zeros.
        texts.extend((1..40).map(|length| [&source[1..length], &[200]].concat().into()));
        texts.extend((1..40).map(|length| [&source[1..length], &[0]].concat().into()));
        texts.extend((1..20).map(|length| vec![0; length].into()));
        texts.sort_unstable();
        texts.dedup();
        let mut index = Texts::new();
        for (number, text) in texts.iter().enumerate() {
            assert_eq!(index.get(text), None);
            index.add(text, number % 2 == 0, number as u64);
        }
        for (number, text) in texts.iter().enumerate() {
            assert_eq!(index.get(text), Some(number as u64));
            index.set(text, 1000 + number as u64);
        }
        let (keys, numbers) = index.all();
        let all: HashMap<Str, u64> = keys.into_iter().zip(numbers).collect();
        assert_eq!(all.len(), texts.len());
        for (number, text) in texts.iter().enumerate() {
            assert_eq!(all[text], 1000 + number as u64);
            assert_eq!(index.remove(text), Some(1000 + number as u64));
            assert_eq!(index.get(text), None);
        }
        assert_eq!(index.len(), 0);
        assert_eq!(index.free.len(), index.long.len());
    }
}
