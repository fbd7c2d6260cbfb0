//! The forward transform, as libjpeg-turbo computes it by default, and quantization.

use super::Block;

/// A number in 13 bits.
const fn fix(x: f64) -> i32 {
    (x * 8192.0 + 0.5) as i32
}

fn descale(x: i32, bits: u32) -> i32 {
    (x + (1 << (bits - 1))) >> bits
}

/// One direction; `whole` brings the two results that need no multiplication to scale, `part` the others.
fn pass(x: [i32; 8], whole: impl Fn(i32) -> i32, part: impl Fn(i32) -> i32) -> [i32; 8] {
    let sums: [i32; 4] = std::array::from_fn(|at| x[at] + x[7 - at]);
    let [d7, d6, d5, d4]: [i32; 4] = std::array::from_fn(|at| x[at] - x[7 - at]);
    let (outer, outer_difference) = (sums[0] + sums[3], sums[0] - sums[3]);
    let (inner, inner_difference) = (sums[1] + sums[2], sums[1] - sums[2]);
    let z1 = (inner_difference + outer_difference) * fix(0.541196100);
    let (y2, y6) = (z1 + outer_difference * fix(0.765366865), z1 - inner_difference * fix(1.847759065));
    let (z1, z2, z3, z4) = (d4 + d7, d5 + d6, d4 + d6, d5 + d7);
    let z5 = (z3 + z4) * fix(1.175875602);
    let (z1, z2) = (-z1 * fix(0.899976223), -z2 * fix(2.562915447));
    let (z3, z4) = (z5 - z3 * fix(1.961570560), z5 - z4 * fix(0.390180644));
    [
        whole(outer + inner),
        part(d7 * fix(1.501321110) + z1 + z4),
        part(y2),
        part(d6 * fix(3.072711026) + z2 + z3),
        whole(outer - inner),
        part(d5 * fix(2.053119869) + z2 + z4),
        part(y6),
        part(d4 * fix(0.298631336) + z1 + z3),
    ]
}

/// The quantized coefficients of 8×8 pixels, row by row.
pub(super) fn transform(pixels: &[u8; 64], quantization: &[u16; 64]) -> Block {
    let mut work = [0i32; 64];
    for row in 0..8 {
        let x = std::array::from_fn(|column| i32::from(pixels[row * 8 + column]) - 128);
        work[row * 8..][..8].copy_from_slice(&pass(x, |x| x << 2, |x| descale(x, 11)));
    }
    for column in 0..8 {
        let x = std::array::from_fn(|row| work[row * 8 + column]);
        for (row, value) in pass(x, |x| descale(x, 2), |x| descale(x, 15)).into_iter().enumerate() {
            work[row * 8 + column] = value;
        }
    }
    std::array::from_fn(|at| {
        let divisor = i32::from(quantization[at]) << 3;
        let size = (work[at].abs() + divisor / 2) / divisor;
        (if work[at] < 0 { -size } else { size }) as i16
    })
}
