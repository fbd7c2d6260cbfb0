//! Inverse transforms, each to the last bit as libjpeg-turbo computes it: the fast one in 16 bits, the accurate one, and
//! those that give fewer pixels than a block has.

use super::Block;
use wide::{i16x8, u8x16};

/// The transform of one component: what a block's coefficients are multiplied by, and the number of pixels it gives.
pub(super) struct Transform {
    kind: Kind,
    multipliers: Block,
    factors: [i32; 64],
    /// The number of pixels along a side of a transformed block: 1, 2, 4 or 8.
    pub(super) size: usize,
}

enum Kind {
    Fast,
    Accurate,
    Four,
    Two,
    One,
}

impl Transform {
    pub(super) fn new(quantization: &[u16; 64], size: usize, accurate: bool) -> Transform {
        let kind = match size {
            1 => Kind::One,
            2 => Kind::Two,
            4 => Kind::Four,
            _ if accurate => Kind::Accurate,
            _ => Kind::Fast,
        };
        let mut multipliers = [0i16; 64];
        for (at, multiplier) in multipliers.iter_mut().enumerate() {
            let scale = fast_scale(at / 8, at % 8);
            *multiplier = ((i64::from(quantization[at]) * i64::from(scale) + (1 << 11)) >> 12) as i16;
        }
        let factors = std::array::from_fn(|at| i32::from(quantization[at]));
        Transform { kind, multipliers, factors, size }
    }

    /// Writes a block's pixels into a plane with rows of `stride` bytes.
    #[inline]
    pub(super) fn put(&self, block: &Block, only_first: bool, out: &mut [u8], stride: usize) {
        match self.kind {
            Kind::Fast if only_first => {
                fill(out, stride, 8, clamped(i32::from(block[0].wrapping_mul(self.multipliers[0]) >> 5)));
            }
            Kind::Fast => fast(block, &self.multipliers, out, stride),
            Kind::Accurate if only_first => {
                fill(out, stride, 8, clamped((i32::from(block[0]).wrapping_mul(self.factors[0]) + 4) >> 3));
            }
            Kind::Accurate => accurate(block, &self.factors, out, stride),
            Kind::Four => four(block, &self.factors, out, stride),
            Kind::Two => two(block, &self.factors, out, stride),
            Kind::One => out[0] = clamped((i32::from(block[0]).wrapping_mul(self.factors[0]) + 4) >> 3),
        }
    }
}

/// The scale of a coefficient of the fast transform: a product of two in 14 bits, rounded.
fn fast_scale(row: usize, column: usize) -> u32 {
    const TABLE: [[u16; 8]; 8] = [
        [16384, 22725, 21407, 19266, 16384, 12873, 8867, 4520],
        [22725, 31521, 29692, 26722, 22725, 17855, 12299, 6270],
        [21407, 29692, 27969, 25172, 21407, 16819, 11585, 5906],
        [19266, 26722, 25172, 22654, 19266, 15137, 10426, 5315],
        [16384, 22725, 21407, 19266, 16384, 12873, 8867, 4520],
        [12873, 17855, 16819, 15137, 12873, 10114, 6967, 3552],
        [8867, 12299, 11585, 10426, 8867, 6967, 4799, 2446],
        [4520, 6270, 5906, 5315, 4520, 3552, 2446, 1247],
    ];
    u32::from(TABLE[row][column])
}

#[inline(always)]
fn clamped(value: i32) -> u8 {
    (value + 128).clamp(0, 255) as u8
}

#[inline(always)]
fn fill(out: &mut [u8], stride: usize, size: usize, value: u8) {
    out.chunks_mut(stride).take(size).for_each(|row| row[..size].fill(value));
}

/// The product with a factor in 8 bits, as a multiplication that keeps the upper half, which processors have.
#[inline(always)]
fn times(x: i16x8, factor: i16) -> i16x8 {
    i16x8::mul_keep_high(x << 2, i16x8::splat(factor << 6))
}

/// One direction of the fast transform, over eight columns at once.
#[inline(always)]
fn fast_pass(x: [i16x8; 8]) -> [i16x8; 8] {
    let (sum, difference) = (x[0] + x[4], x[0] - x[4]);
    let outer = x[2] + x[6];
    let inner = times(x[2] - x[6], 362) - outer;
    let even = [sum + outer, difference + inner, difference - inner, sum - outer];
    let (z13, z10, z11, z12) = (x[5] + x[3], x[5] - x[3], x[1] + x[7], x[1] - x[7]);
    let odd7 = z11 + z13;
    let cross = times(z11 - z13, 362);
    let z5 = times(z10 + z12, 473);
    let odd10 = times(z12, 277) - z5;
    // −2.613 is split so that the factor fits into 16 bits.
    let odd12 = times(z10, -413) - z10 + z5;
    let odd6 = odd12 - odd7;
    let odd5 = cross - odd6;
    let odd4 = odd10 + odd5;
    [
        even[0] + odd7,
        even[1] + odd6,
        even[2] + odd5,
        even[3] - odd4,
        even[3] + odd4,
        even[2] - odd5,
        even[1] - odd6,
        even[0] - odd7,
    ]
}

fn fast(block: &Block, multipliers: &Block, out: &mut [u8], stride: usize) {
    let (block, _) = block.as_chunks::<8>();
    let (multipliers, _) = multipliers.as_chunks::<8>();
    let rows = std::array::from_fn(|row| i16x8::new(block[row]) * i16x8::new(multipliers[row]));
    let rows = i16x8::transpose(fast_pass(i16x8::transpose(fast_pass(rows))));
    let center = i16x8::splat(128);
    let pixels: [i16x8; 8] = rows.map(|row| (row >> 5) + center);
    for (pair, out) in pixels.as_chunks::<2>().0.iter().zip(out.chunks_mut(2 * stride)) {
        // Two rows at once; what is not a byte becomes the nearest one.
        let bytes = u8x16::narrow_i16x8(pair[0], pair[1]).to_array();
        out[..8].copy_from_slice(&bytes[..8]);
        out[stride..stride + 8].copy_from_slice(&bytes[8..]);
    }
}

/// A number in 13 bits.
const fn fix(x: f64) -> i32 {
    (x * 8192.0 + 0.5) as i32
}

#[inline(always)]
fn descale(x: i32, bits: u32) -> i32 {
    x.wrapping_add(1 << (bits - 1)) >> bits
}

#[inline(always)]
fn mul(x: i32, factor: i32) -> i32 {
    x.wrapping_mul(factor)
}

#[inline(always)]
fn sum<const N: usize>(terms: [i32; N]) -> i32 {
    terms.iter().fold(0, |sum, term| sum.wrapping_add(*term))
}

/// One direction of the accurate transform; results have 13 more bits.
#[inline(always)]
fn accurate_pass(x: [i32; 8]) -> [i32; 8] {
    let z1 = mul(x[2].wrapping_add(x[6]), fix(0.541196100));
    let low = z1.wrapping_sub(mul(x[6], fix(1.847759065)));
    let high = z1.wrapping_add(mul(x[2], fix(0.765366865)));
    let (sum_even, difference) = (x[0].wrapping_add(x[4]) << 13, x[0].wrapping_sub(x[4]) << 13);
    let even = [
        sum_even.wrapping_add(high),
        difference.wrapping_add(low),
        difference.wrapping_sub(low),
        sum_even.wrapping_sub(high),
    ];
    let [t0, t1, t2, t3] = [x[7], x[5], x[3], x[1]];
    let (z1, z2, z3, z4) =
        (t0.wrapping_add(t3), t1.wrapping_add(t2), t0.wrapping_add(t2), t1.wrapping_add(t3));
    let z5 = mul(z3.wrapping_add(z4), fix(1.175875602));
    let (z1, z2) = (mul(z1, -fix(0.899976223)), mul(z2, -fix(2.562915447)));
    let z3 = mul(z3, -fix(1.961570560)).wrapping_add(z5);
    let z4 = mul(z4, -fix(0.390180644)).wrapping_add(z5);
    let odd = [
        sum([mul(t3, fix(1.501321110)), z1, z4]),
        sum([mul(t2, fix(3.072711026)), z2, z3]),
        sum([mul(t1, fix(2.053119869)), z2, z4]),
        sum([mul(t0, fix(0.298631336)), z1, z3]),
    ];
    std::array::from_fn(|at| {
        let other = if at < 4 { at } else { 7 - at };
        if at < 4 { even[other].wrapping_add(odd[other]) } else { even[other].wrapping_sub(odd[other]) }
    })
}

fn accurate(block: &Block, factors: &[i32; 64], out: &mut [u8], stride: usize) {
    let mut work = [[0i32; 8]; 8];
    for column in 0..8 {
        let x = std::array::from_fn(|row| mul(i32::from(block[row * 8 + column]), factors[row * 8 + column]));
        for (row, value) in accurate_pass(x).into_iter().enumerate() {
            work[row][column] = descale(value, 11);
        }
    }
    for (row, out) in work.iter().zip(out.chunks_mut(stride)) {
        for (out, value) in out.iter_mut().zip(accurate_pass(*row)) {
            *out = clamped(descale(value, 18));
        }
    }
}

#[inline(always)]
fn four_pass(x: [i32; 8]) -> [i32; 4] {
    let first = x[0] << 14;
    let even = sum([mul(x[2], fix(1.847759065)), mul(x[6], -fix(0.765366865))]);
    let (outer, inner) = (first.wrapping_add(even), first.wrapping_sub(even));
    let t0 = sum([
        mul(x[7], -fix(0.211164243)),
        mul(x[5], fix(1.451774981)),
        mul(x[3], -fix(2.172734803)),
        mul(x[1], fix(1.061594337)),
    ]);
    let t2 = sum([
        mul(x[7], -fix(0.509795579)),
        mul(x[5], -fix(0.601344887)),
        mul(x[3], fix(0.899976223)),
        mul(x[1], fix(2.562915447)),
    ]);
    [outer.wrapping_add(t2), inner.wrapping_add(t0), inner.wrapping_sub(t0), outer.wrapping_sub(t2)]
}

fn four(block: &Block, factors: &[i32; 64], out: &mut [u8], stride: usize) {
    let mut work = [[0i32; 8]; 4];
    for column in [0, 1, 2, 3, 5, 6, 7] {
        let x = std::array::from_fn(|row| mul(i32::from(block[row * 8 + column]), factors[row * 8 + column]));
        for (row, value) in four_pass(x).into_iter().enumerate() {
            work[row][column] = descale(value, 12);
        }
    }
    for (row, out) in work.iter().zip(out.chunks_mut(stride)) {
        for (out, value) in out.iter_mut().zip(four_pass(*row)) {
            *out = clamped(descale(value, 19));
        }
    }
}

#[inline(always)]
fn two_pass(x: [i32; 8]) -> [i32; 2] {
    let first = x[0] << 15;
    let odd = sum([
        mul(x[7], -fix(0.720959822)),
        mul(x[5], fix(0.850430095)),
        mul(x[3], -fix(1.272758580)),
        mul(x[1], fix(3.624509785)),
    ]);
    [first.wrapping_add(odd), first.wrapping_sub(odd)]
}

fn two(block: &Block, factors: &[i32; 64], out: &mut [u8], stride: usize) {
    let mut work = [[0i32; 8]; 2];
    for column in [0, 1, 3, 5, 7] {
        let x = std::array::from_fn(|row| mul(i32::from(block[row * 8 + column]), factors[row * 8 + column]));
        for (row, value) in two_pass(x).into_iter().enumerate() {
            work[row][column] = descale(value, 13);
        }
    }
    for (row, out) in work.iter().zip(out.chunks_mut(stride)) {
        for (out, value) in out.iter_mut().zip(two_pass(*row)) {
            *out = clamped(descale(value, 20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_one_coefficient_is_even() {
        for (size, accurate) in [(8, false), (8, true), (4, true), (2, true), (1, true)] {
            let transform = Transform::new(&[16; 64], size, accurate);
            let mut block = [0; 64];
            block[0] = 20;
            let (mut general, mut short) = ([0u8; 64], [0u8; 64]);
            transform.put(&block, false, &mut general, 8);
            transform.put(&block, true, &mut short, 8);
            assert_eq!(general, short);
            assert_eq!(general[0], 168);
        }
    }
}
