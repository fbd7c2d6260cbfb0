//! Floats of eight bits: encoding with rounding to the nearest, ties to even, and decoding.

/// The layout of an eight-bit float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float8 {
    /// Five bits of exponent and two of mantissa, with infinities.
    E5M2,
    /// Four bits of exponent and three of mantissa; no infinities, and one NaN per sign.
    E4M3Fn,
}

impl Float8 {
    fn mantissa_bits(self) -> i32 {
        match self {
            Float8::E5M2 => 2,
            Float8::E4M3Fn => 3,
        }
    }

    fn bias(self) -> i32 {
        match self {
            Float8::E5M2 => 15,
            Float8::E4M3Fn => 7,
        }
    }

    /// The value of numbers that are too large.
    fn beyond(self) -> u8 {
        match self {
            Float8::E5M2 => 0x7c,
            Float8::E4M3Fn => 0x7f,
        }
    }

    fn not_a_number(self) -> u8 {
        match self {
            Float8::E5M2 => 0x7e,
            Float8::E4M3Fn => 0x7f,
        }
    }

    /// The nearest float of eight bits.
    pub(crate) fn encode(self, value: f64) -> u8 {
        let sign = (value.is_sign_negative() as u8) << 7;
        if value.is_nan() {
            return sign | self.not_a_number();
        }
        let (bits, bias) = (self.mantissa_bits(), self.bias());
        let size = value.abs();
        // The exponent's field is read off the double; what is smaller than all normal numbers shares the least one.
        let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(1 - bias);
        if exponent > bias + 1 {
            return sign | self.beyond();
        }
        let steps = (size * 2f64.powi(bits - exponent)).round_ties_even() as i32;
        let code = ((exponent + bias) << bits) + steps - (1 << bits);
        sign | (code.min(self.beyond().into()) as u8)
    }

    /// The number that a code stands for.
    pub(crate) fn decode(self, code: u8) -> f32 {
        let (bits, bias) = (self.mantissa_bits(), self.bias());
        let (sign, size) = (if code & 0x80 == 0 { 1.0 } else { -1.0 }, code & 0x7f);
        if size >= self.beyond() {
            return if size == 0x7c { sign * f32::INFINITY } else { f32::NAN };
        }
        let (exponent, mantissa) = ((size >> bits) as i32, (size & ((1 << bits) - 1)) as i32);
        let steps = if exponent == 0 { mantissa } else { mantissa + (1 << bits) };
        sign * steps as f32 * 2f32.powi(exponent.max(1) - bias - bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_its_own_nearest() {
        for format in [Float8::E5M2, Float8::E4M3Fn] {
            for code in 0..=u8::MAX {
                let value = format.decode(code);
                if !value.is_nan() {
                    assert_eq!(format.encode(value.into()), code, "{format:?}: {value}");
                }
            }
        }
    }
}
