//! The Mersenne Twister of 64 bits and the shuffle of the C++ standard library on it, for orders that must be stock's.

/// The state of `std::mt19937_64`.
pub(crate) struct Mersenne {
    words: Box<[u64; N]>,
    next: usize,
}

const N: usize = 312;
const M: usize = 156;

impl Mersenne {
    pub(crate) fn new(seed: u64) -> Mersenne {
        let mut words = Box::new([seed; N]);
        for i in 1..N {
            let before = words[i - 1] ^ (words[i - 1] >> 62);
            words[i] = before.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i as u64);
        }
        Mersenne { words, next: N }
    }

    pub(crate) fn next(&mut self) -> u64 {
        if self.next == N {
            self.twist();
        }
        let mut x = self.words[self.next];
        self.next += 1;
        x ^= (x >> 29) & 0x5555_5555_5555_5555;
        x ^= (x << 17) & 0x71d6_7fff_eda6_0000;
        x ^= (x << 37) & 0xfff7_eee0_0000_0000;
        x ^ (x >> 43)
    }

    fn twist(&mut self) {
        const LOWER: u64 = (1 << 31) - 1;
        for i in 0..N {
            let joined = (self.words[i] & !LOWER) | (self.words[(i + 1) % N] & LOWER);
            let odd = if joined & 1 == 1 { 0xb502_6f5a_a966_19e9 } else { 0 };
            self.words[i] = self.words[(i + M) % N] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }

    /// A number below `bound`, which is not 0: the high word of a product, without the products that favor some numbers.
    fn below(&mut self, bound: u64) -> u64 {
        loop {
            let product = self.next() as u128 * bound as u128;
            if product as u64 >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// `std::shuffle`, which draws two places with one number.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        let mut at = 1;
        if items.len().is_multiple_of(2) && items.len() > 1 {
            items.swap(at, self.below(2) as usize);
            at += 1;
        }
        while at + 1 < items.len() {
            let bound = at as u64 + 2;
            let both = self.below((at as u64 + 1) * bound);
            items.swap(at, (both / bound) as usize);
            items.swap(at + 1, (both % bound) as usize);
            at += 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C++ standard names this number.
    #[test]
    fn the_ten_thousandth_number_is_known() {
        let mut generator = Mersenne::new(5489);
        (0..9999).for_each(|_| {
            generator.next();
        });
        assert_eq!(generator.next(), 9_981_545_732_273_789_042);
    }
}
