//! Dispatch of code that only moves elements, by what an element is made of. Ops written with it have one kernel for
//! every element type.

/// Evaluates `$body` with `$unit` standing for the unit type that tensors of `$dtype` are made of.
macro_rules! by_unit {
    ($dtype:expr, $unit:ident => $body:expr) => {
        match ($dtype, $dtype.size()) {
            (ferroflow_core::DType::String, _) => {
                type $unit = ferroflow_core::kernel::Str;
                $body
            }
            (ferroflow_core::DType::Resource, _) => {
                type $unit = ferroflow_core::resource::ResourceHandle;
                $body
            }
            (ferroflow_core::DType::Variant, _) => {
                type $unit = ferroflow_core::variant::Variant;
                $body
            }
            (_, 1) => {
                type $unit = u8;
                $body
            }
            (_, 2) => {
                type $unit = u16;
                $body
            }
            (_, 4) => {
                type $unit = u32;
                $body
            }
            (_, 8) => {
                type $unit = u64;
                $body
            }
            _ => {
                type $unit = u128;
                $body
            }
        }
    };
}
pub(crate) use by_unit;
