//! Hashes whose values users keep in models, bit for bit as stock computes them. Crates promise speed or strength, not
//! these exact values for ever, so they stand here, short and tested against stock's.

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn half_word(bytes: &[u8], at: usize) -> u64 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as u64
}

/// FarmHash's `Fingerprint64`.
pub(crate) fn fingerprint64(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=16 => farm_0_to_16(bytes),
        17..=32 => farm_17_to_32(bytes),
        33..=64 => farm_33_to_64(bytes),
        _ => farm_long(bytes),
    }
}

const K0: u64 = 0xc3a5_c85c_97cb_3127;
const K1: u64 = 0xb492_b66f_be98_f273;
const K2: u64 = 0x9ae1_6a3b_2f90_404f;

fn shift_mix(value: u64) -> u64 {
    value ^ (value >> 47)
}

fn mix(u: u64, v: u64, multiplier: u64) -> u64 {
    let a = shift_mix((u ^ v).wrapping_mul(multiplier));
    shift_mix((v ^ a).wrapping_mul(multiplier)).wrapping_mul(multiplier)
}

fn farm_0_to_16(s: &[u8]) -> u64 {
    let length = s.len();
    if length >= 8 {
        let multiplier = K2.wrapping_add(length as u64 * 2);
        let a = word(s, 0).wrapping_add(K2);
        let b = word(s, length - 8);
        let c = b.rotate_right(37).wrapping_mul(multiplier).wrapping_add(a);
        let d = a.rotate_right(25).wrapping_add(b).wrapping_mul(multiplier);
        return mix(c, d, multiplier);
    }
    if length >= 4 {
        let multiplier = K2.wrapping_add(length as u64 * 2);
        let first = half_word(s, 0);
        return mix((first << 3).wrapping_add(length as u64), half_word(s, length - 4), multiplier);
    }
    if length == 0 {
        return K2;
    }
    let (a, b, c) = (s[0] as u64, s[length >> 1] as u64, s[length - 1] as u64);
    let y = a + (b << 8);
    let z = length as u64 + (c << 2);
    shift_mix(y.wrapping_mul(K2) ^ z.wrapping_mul(K0)).wrapping_mul(K2)
}

fn farm_17_to_32(s: &[u8]) -> u64 {
    let length = s.len();
    let multiplier = K2.wrapping_add(length as u64 * 2);
    let a = word(s, 0).wrapping_mul(K1);
    let b = word(s, 8);
    let c = word(s, length - 8).wrapping_mul(multiplier);
    let d = word(s, length - 16).wrapping_mul(K2);
    let u = a.wrapping_add(b).rotate_right(43).wrapping_add(c.rotate_right(30)).wrapping_add(d);
    let v = a.wrapping_add(b.wrapping_add(K2).rotate_right(18)).wrapping_add(c);
    mix(u, v, multiplier)
}

fn farm_33_to_64(s: &[u8]) -> u64 {
    let length = s.len();
    let multiplier = K2.wrapping_add(length as u64 * 2);
    let a = word(s, 0).wrapping_mul(K2);
    let b = word(s, 8);
    let c = word(s, length - 8).wrapping_mul(multiplier);
    let d = word(s, length - 16).wrapping_mul(K2);
    let y = a.wrapping_add(b).rotate_right(43).wrapping_add(c.rotate_right(30)).wrapping_add(d);
    let z = mix(y, a.wrapping_add(b.wrapping_add(K2).rotate_right(18)).wrapping_add(c), multiplier);
    let e = word(s, 16).wrapping_mul(multiplier);
    let f = word(s, 24);
    let g = y.wrapping_add(word(s, length - 32)).wrapping_mul(multiplier);
    let h = z.wrapping_add(word(s, length - 24)).wrapping_mul(multiplier);
    let u = e.wrapping_add(f).rotate_right(43).wrapping_add(g.rotate_right(30)).wrapping_add(h);
    let v = e.wrapping_add(f.wrapping_add(a).rotate_right(18)).wrapping_add(g);
    mix(u, v, multiplier)
}

fn weak_pair(s: &[u8], at: usize, a: u64, b: u64) -> (u64, u64) {
    let (w, x, y, z) = (word(s, at), word(s, at + 8), word(s, at + 16), word(s, at + 24));
    let a = a.wrapping_add(w);
    let b = b.wrapping_add(a).wrapping_add(z).rotate_right(21);
    let c = a;
    let a = a.wrapping_add(x).wrapping_add(y);
    let b = b.wrapping_add(a.rotate_right(44));
    (a.wrapping_add(z), b.wrapping_add(c))
}

fn farm_long(s: &[u8]) -> u64 {
    const SEED: u64 = 81;
    let length = s.len();
    let mut x = SEED.wrapping_mul(K2).wrapping_add(word(s, 0));
    let mut y = SEED.wrapping_mul(K1).wrapping_add(113);
    let mut z = shift_mix(y.wrapping_mul(K2).wrapping_add(113)).wrapping_mul(K2);
    let (mut v, mut w) = ((0u64, 0u64), (0u64, 0u64));
    let end = (length - 1) / 64 * 64;
    let last = end + ((length - 1) & 63) - 63;
    let mut at = 0;
    while at < end {
        x = x
            .wrapping_add(y)
            .wrapping_add(v.0)
            .wrapping_add(word(s, at + 8))
            .rotate_right(37)
            .wrapping_mul(K1);
        y = y.wrapping_add(v.1).wrapping_add(word(s, at + 48)).rotate_right(42).wrapping_mul(K1);
        x ^= w.1;
        y = y.wrapping_add(v.0).wrapping_add(word(s, at + 40));
        z = z.wrapping_add(w.0).rotate_right(33).wrapping_mul(K1);
        v = weak_pair(s, at, v.1.wrapping_mul(K1), x.wrapping_add(w.0));
        w = weak_pair(s, at + 32, z.wrapping_add(w.1), y.wrapping_add(word(s, at + 16)));
        std::mem::swap(&mut z, &mut x);
        at += 64;
    }
    let multiplier = K1.wrapping_add((z & 0xff) << 1);
    w.0 = w.0.wrapping_add(((length - 1) & 63) as u64);
    v.0 = v.0.wrapping_add(w.0);
    w.0 = w.0.wrapping_add(v.0);
    x = x
        .wrapping_add(y)
        .wrapping_add(v.0)
        .wrapping_add(word(s, last + 8))
        .rotate_right(37)
        .wrapping_mul(multiplier);
    y = y.wrapping_add(v.1).wrapping_add(word(s, last + 48)).rotate_right(42).wrapping_mul(multiplier);
    x ^= w.1.wrapping_mul(9);
    y = y.wrapping_add(v.0.wrapping_mul(9)).wrapping_add(word(s, last + 40));
    z = z.wrapping_add(w.0).rotate_right(33).wrapping_mul(multiplier);
    v = weak_pair(s, last, v.1.wrapping_mul(multiplier), x.wrapping_add(w.0));
    w = weak_pair(s, last + 32, z.wrapping_add(w.1), y.wrapping_add(word(s, last + 16)));
    std::mem::swap(&mut z, &mut x);
    mix(
        mix(v.0, w.0, multiplier).wrapping_add(shift_mix(y).wrapping_mul(K0)).wrapping_add(z),
        mix(v.1, w.1, multiplier).wrapping_add(x),
        multiplier,
    )
}

/// FarmHash's `Fingerprint128`: the low word and the high one.
pub(crate) fn fingerprint128(bytes: &[u8]) -> [u64; 2] {
    if bytes.len() < 16 {
        return city_short(bytes, [K0, K1]);
    }
    let (seed, rest) = ([word(bytes, 0), word(bytes, 8).wrapping_add(K0)], &bytes[16..]);
    if rest.len() < 128 { city_short(rest, seed) } else { city_long(rest, seed) }
}

fn mix_pair(u: u64, v: u64) -> u64 {
    mix(u, v, 0x9ddf_ea08_eb38_2d69)
}

fn city_short(s: &[u8], seed: [u64; 2]) -> [u64; 2] {
    let [mut a, mut b] = seed;
    let length = s.len();
    let (mut c, mut d);
    if length <= 16 {
        a = shift_mix(a.wrapping_mul(K1)).wrapping_mul(K1);
        c = b.wrapping_mul(K1).wrapping_add(farm_0_to_16(s));
        d = shift_mix(a.wrapping_add(if length >= 8 { word(s, 0) } else { c }));
    } else {
        c = mix_pair(word(s, length - 8).wrapping_add(K1), a);
        d = mix_pair(b.wrapping_add(length as u64), c.wrapping_add(word(s, length - 16)));
        a = a.wrapping_add(d);
        // The last words take part above, so the last step may end at or before the end.
        for at in (0..length - 16).step_by(16) {
            a ^= shift_mix(word(s, at).wrapping_mul(K1)).wrapping_mul(K1);
            a = a.wrapping_mul(K1);
            b ^= a;
            c ^= shift_mix(word(s, at + 8).wrapping_mul(K1)).wrapping_mul(K1);
            c = c.wrapping_mul(K1);
            d ^= c;
        }
    }
    let (a, b) = (mix_pair(a, c), mix_pair(d, b));
    [a ^ b, mix_pair(b, a)]
}

fn city_long(s: &[u8], [mut x, mut y]: [u64; 2]) -> [u64; 2] {
    let mut z = (s.len() as u64).wrapping_mul(K1);
    let v0 = (y ^ K1).rotate_right(49).wrapping_mul(K1).wrapping_add(word(s, 0));
    let mut v = (v0, v0.rotate_right(42).wrapping_mul(K1).wrapping_add(word(s, 8)));
    let w0 = y.wrapping_add(z).rotate_right(35).wrapping_mul(K1).wrapping_add(x);
    let mut w = (w0, x.wrapping_add(word(s, 88)).rotate_right(53).wrapping_mul(K1));
    let whole = s.len() / 128 * 128;
    for at in (0..whole).step_by(64) {
        let sum = x.wrapping_add(y).wrapping_add(v.0).wrapping_add(word(s, at + 8));
        x = sum.rotate_right(37).wrapping_mul(K1) ^ w.1;
        y = y.wrapping_add(v.1).wrapping_add(word(s, at + 48)).rotate_right(42).wrapping_mul(K1);
        y = y.wrapping_add(v.0).wrapping_add(word(s, at + 40));
        z = z.wrapping_add(w.0).rotate_right(33).wrapping_mul(K1);
        v = weak_pair(s, at, v.1.wrapping_mul(K1), x.wrapping_add(w.0));
        w = weak_pair(s, at + 32, z.wrapping_add(w.1), y.wrapping_add(word(s, at + 16)));
        std::mem::swap(&mut z, &mut x);
    }
    x = x.wrapping_add(v.0.wrapping_add(z).rotate_right(49).wrapping_mul(K0));
    y = y.wrapping_mul(K0).wrapping_add(w.1.rotate_right(37));
    z = z.wrapping_mul(K0).wrapping_add(w.0.rotate_right(27));
    w.0 = w.0.wrapping_mul(9);
    v.0 = v.0.wrapping_mul(K0);
    let rest = s.len() - whole;
    for done in (0..rest).step_by(32) {
        let at = s.len() - done - 32;
        y = x.wrapping_add(y).rotate_right(42).wrapping_mul(K0).wrapping_add(v.1);
        w.0 = w.0.wrapping_add(word(s, at + 16));
        x = x.wrapping_mul(K0).wrapping_add(w.0);
        z = z.wrapping_add(w.1).wrapping_add(word(s, at));
        w.1 = w.1.wrapping_add(v.0);
        v = weak_pair(s, at, v.0.wrapping_add(z), v.1);
        v.0 = v.0.wrapping_mul(K0);
    }
    let x = mix_pair(x, v.0);
    let y = mix_pair(y.wrapping_add(z), w.0);
    [mix_pair(x.wrapping_add(v.1), w.1).wrapping_add(y), mix_pair(x.wrapping_add(w.1), y.wrapping_add(v.1))]
}

/// SipHash-2-4 under a key of two words.
pub(crate) fn sip_hash(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    for chunk in words.iter().chain([&last]) {
        let message = u64::from_le_bytes(*chunk);
        v[3] ^= message;
        sip_rounds(&mut v, 2);
        v[0] ^= message;
    }
    v[2] ^= 0xff;
    sip_rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn sip_rounds(v: &mut [u64; 4], rounds: usize) {
    for _ in 0..rounds {
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    }
}

/// Stock's `FingerprintCat64`: the fingerprint of two parts of which fingerprints are known. Their order matters.
pub(crate) fn fingerprint_cat(first: u64, second: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mixed = first ^ M ^ shift_mix(second.wrapping_mul(M)).wrapping_mul(M);
    shift_mix(shift_mix(mixed.wrapping_mul(M)).wrapping_mul(M))
}

/// The hash of stock's own tables: MurmurHash64A under a fixed seed.
pub(crate) fn murmur64(bytes: &[u8]) -> u64 {
    murmur64_seeded(bytes, 0xde_cafc_affe)
}

/// MurmurHash64A.
pub(crate) fn murmur64_seeded(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for chunk in words {
        let k = u64::from_le_bytes(*chunk).wrapping_mul(M);
        hash = (hash ^ (k ^ (k >> 47)).wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 47)).wrapping_mul(M);
    hash ^ (hash >> 47)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_stocks() {
        for (text, bucket) in [("a", 939), ("b", 822), ("hello world", 11), ("", 263)] {
            assert_eq!(fingerprint64(text.as_bytes()) % 1000, bucket, "{text:?}");
        }
        let expected = [
            3091163115821544028,
            416454844068956798,
            3320895591121647644,
            2082709914559524773,
            3678204687145032709,
            3046993373088323127,
            2304502108871267256,
            323337772074164025,
            1487499551542932974,
        ];
        for (length, hash) in [3, 8, 16, 17, 32, 33, 64, 65, 130].into_iter().zip(expected) {
            assert_eq!(fingerprint64("x".repeat(length).as_bytes()) % (1 << 62), hash, "{length}");
        }
        for (text, bucket) in [("a", 646), ("b", 184), ("hello world", 446), ("xxxxxxxxxxxxxxxxxxxx", 326)] {
            assert_eq!(sip_hash([1, 2], text.as_bytes()) % 1000, bucket, "{text:?}");
        }
        for (text, bucket) in [("a", 868), ("b", 370), ("hello world", 655), ("", 899)] {
            assert_eq!(murmur64(text.as_bytes()) % 1000, bucket, "{text:?}");
        }
    }
}
