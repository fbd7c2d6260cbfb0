//! The direction numbers of Sobol's sequence (Joe and Kuo, "Constructing Sobol sequences with better two-dimensional
//! projections").

/// Dimensions from the second on, in lines: the degree of a primitive polynomial, its inner coefficients, and the first
/// direction numbers, as many as the degree. Of number `k`, which is odd and below `2^(k+1)`, the table has the `k` bits
/// that this does not say, one number after the other.
const NUMBERS: &str = include_str!("sobol_numbers.txt");

/// The dimensions in the table. Stock knows twenty times as many, in a table of its size.
pub(crate) const DIMENSIONS: usize = 1111;

/// Bits of points.
const BITS: usize = 32;

/// The direction numbers of the first dimensions, `BITS` each, before they are shifted into place.
pub(crate) fn direction_numbers(dimensions: usize) -> Vec<[u32; BITS]> {
    let mut numbers = vec![[1; BITS]];
    let lines = NUMBERS.lines().map(|line| {
        let mut words = line.split(' ').map(|word| u128::from_str_radix(word, 16).unwrap_or(0));
        [words.next(), words.next(), words.next()].map(Option::unwrap_or_default)
    });
    numbers.extend(
        lines
            .take(dimensions.saturating_sub(1))
            .map(|[degree, inner, first]| recurrence(degree as usize, inner as u32, first)),
    );
    numbers
}

fn recurrence(degree: usize, inner: u32, first: u128) -> [u32; BITS] {
    let mut numbers = [0; BITS];
    for k in 0..BITS {
        numbers[k] = if k < degree {
            let bits = (first >> (k * k.saturating_sub(1) / 2)) & ((1 << k) - 1);
            (bits as u32) << 1 | 1
        } else {
            let far = numbers[k - degree];
            let terms = (1..degree).filter(|i| (inner >> (degree - 1 - i)) & 1 == 1);
            terms.fold(far ^ far.wrapping_shl(degree as u32), |sum, i| {
                sum ^ numbers[k - i].wrapping_shl(i as u32)
            })
        };
    }
    numbers
}
