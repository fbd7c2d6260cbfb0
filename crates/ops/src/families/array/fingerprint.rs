//! Fingerprints of rows: hashes that are the same in every release.

use crate::numeric::hash::fingerprint64;
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Shape, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&FINGERPRINT];

static FINGERPRINT: Op = Op {
    name: "Fingerprint",
    inputs: &["data: T", "method: string"],
    outputs: &["fingerprint: uint8"],
    attrs: &["T: type"],
    shape: fingerprint_shape,
    kernels: kernels![any fingerprint_kernel],
    ..Op::PURE
};

const METHOD: &[u8] = b"farmhash64";

fn fingerprint_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let data = s.rank_at_least(0, 1)?;
    s.rank(1, 0)?;
    let width = match s.constant(1) {
        None => UNKNOWN_DIM,
        Some(method) => {
            let method = method.to_scalar::<Str>()?;
            ensure!(
                method == METHOD,
                InvalidArgument,
                "Unsupported method: {}",
                String::from_utf8_lossy(&method)
            );
            8
        }
    };
    s.output(0, [data.dims().map_or(UNKNOWN_DIM, |dims| dims[0]), width])
}

fn fingerprint_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("T")?;
    ensure!(dtype.is_plain() || dtype == DType::String, InvalidArgument, "Data type not supported: {dtype}");
    Kernel::sync(|cx| {
        let (data, method) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            method.rank() == 0,
            InvalidArgument,
            "`method` should be a scalar string: {}",
            method.shape()
        );
        let method = method.to_scalar::<Str>()?;
        ensure!(
            method == METHOD,
            InvalidArgument,
            "Unsupported fingerprint method: {}",
            String::from_utf8_lossy(&method)
        );
        ensure!(
            data.rank() > 0,
            InvalidArgument,
            "`data` should have at least one dimension: {}",
            data.shape()
        );
        let rows = data.shape().dim(0);
        let mut out = cx.alloc::<u8>(Shape::matrix(rows, 8))?;
        let prints = out.flat_mut::<u8>()?.as_chunks_mut::<8>().0;
        let width = data.elements() / rows.max(1);
        if data.dtype() == DType::String {
            let texts = data.flat::<Str>()?;
            for (row, print) in prints.iter_mut().enumerate() {
                let hashes: Vec<[u8; 8]> = texts[row * width..(row + 1) * width]
                    .iter()
                    .map(|text| fingerprint64(text).to_le_bytes())
                    .collect();
                // The fingerprint of several texts is that of their fingerprints.
                *print = match hashes.as_slice() {
                    [hash] => *hash,
                    hashes => fingerprint64(hashes.as_flattened()).to_le_bytes(),
                };
            }
            return Ok(out.into());
        }
        let (bytes, width) = (data.bytes()?, width * data.dtype().size());
        for (row, print) in prints.iter_mut().enumerate() {
            *print = fingerprint64(&bytes[row * width..(row + 1) * width]).to_le_bytes();
        }
        Ok(out.into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::infer;

    #[test]
    fn a_row_has_eight_bytes() {
        infer("Fingerprint", "[4,2];[]", "[4,?]");
    }
}
