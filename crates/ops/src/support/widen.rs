//! 16-bit floats as single precision and back, whole tensors at a time, for kernels that compute in single precision.

use ferroflow_core::kernel::KernelCx;
use ferroflow_core::{DType, Result, Tensor, bf16, f16};

/// The tensor itself, or its elements in single precision if they are 16-bit floats.
pub(crate) fn widened(cx: &KernelCx<'_>, tensor: &Tensor) -> Result<Tensor> {
    let mut wide = match tensor.dtype() {
        DType::Half | DType::Bfloat16 => cx.alloc::<f32>(tensor.shape().clone())?,
        _ => return Ok(tensor.clone()),
    };
    let elements = wide.flat_mut::<f32>()?;
    if tensor.dtype() == DType::Half {
        for (wide, x) in elements.iter_mut().zip(tensor.flat::<f16>()?) {
            *wide = x.to_f32();
        }
    } else {
        for (wide, x) in elements.iter_mut().zip(tensor.flat::<bf16>()?) {
            *wide = x.to_f32();
        }
    }
    Ok(wide)
}

/// The tensor itself, or its elements rounded to 16 bits if that is what `dtype` asks for.
pub(crate) fn narrowed(cx: &KernelCx<'_>, tensor: Tensor, dtype: DType) -> Result<Tensor> {
    if tensor.dtype() == dtype {
        return Ok(tensor);
    }
    let mut narrow = cx.alloc_dtype(dtype, tensor.shape().clone())?;
    let elements = tensor.flat::<f32>()?;
    if dtype == DType::Half {
        let narrow = narrow.flat_mut::<f16>()?;
        for (narrow, x) in narrow.iter_mut().zip(elements) {
            *narrow = f16::from_f32(*x);
        }
    } else {
        let narrow = narrow.flat_mut::<bf16>()?;
        for (narrow, x) in narrow.iter_mut().zip(elements) {
            *narrow = bf16::from_f32(*x);
        }
    }
    Ok(narrow)
}
