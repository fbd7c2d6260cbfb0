"""Sparse and ragged tensors."""

from gradients import any_, positive

import tensorflow as tf

raw = tf.raw_ops

A, B = [[0, 1], [1, 0], [1, 2]], [[0, 0], [0, 1], [1, 2]]


def long(values):
    return tf.constant(values, tf.int64)


def cases(c):
    entries(c)
    products(c)
    matrices(c)
    ragged(c)


def entries(c):
    parts = lambda indices, values: dict(indices=long(indices), values=values, shape=long([2, 3]))
    both = lambda x, y: raw.SparseAdd(
        a_indices=long(A),
        a_values=x,
        a_shape=long([2, 3]),
        b_indices=long(B),
        b_values=y,
        b_shape=long([2, 3]),
        thresh=tf.cast(0, x.dtype),
    )
    c.case("SparseAdd", lambda x, y: both(x, y).sum_values, any_(3), any_(3))
    c.case(
        "SparseTensorDenseAdd",
        lambda x, y: raw.SparseTensorDenseAdd(a_indices=long(A), a_values=x, a_shape=long([2, 3]), b=y),
        any_(3),
        any_(2, 3),
    )
    for label, op in {
        "SparseDenseCwiseMul": raw.SparseDenseCwiseMul,
        "SparseDenseCwiseDiv": raw.SparseDenseCwiseDiv,
    }.items():
        build = lambda x, y, op=op: op(sp_indices=long(A), sp_values=x, sp_shape=long([2, 3]), dense=y)
        for name, shape in {"": (2, 3), "/row": (3,), "/column": (2, 1)}.items():
            c.case(f"{label}{name}", build, any_(3), positive(*shape), unknown=name == "/row")
    unsorted = [[1, 2], [0, 1], [1, 0]]
    reorder = lambda x: (
        raw.SparseReorder(input_indices=long(unsorted), input_values=x, input_shape=long([2, 3])).output_values
    )
    c.case("SparseReorder", reorder, any_(3))
    c.case(
        "SparseSlice",
        lambda x: raw.SparseSlice(**parts(A, x), start=long([1, 0]), size=long([1, 3])).output_values,
        any_(3),
    )
    for name, axes, keep in (("rows", [1], False), ("kept", [-1], True), ("all", [0, 1], False)):
        reduce = lambda x, axes=axes, keep=keep: raw.SparseReduceSum(
            input_indices=long(A),
            input_values=x,
            input_shape=long([2, 3]),
            reduction_axes=axes,
            keep_dims=keep,
        )
        c.case(f"SparseReduceSum/{name}", reduce, any_(3))
    c.case(
        "SparseSoftmax",
        lambda x: raw.SparseSoftmax(sp_indices=long(A), sp_values=x, sp_shape=long([2, 3])),
        any_(3),
    )
    fill = lambda x, d: raw.SparseFillEmptyRows(
        indices=long([[1, 0], [1, 3], [3, 2]]), values=x, dense_shape=long([5, 4]), default_value=d
    )
    c.case("SparseFillEmptyRows", lambda x, d: fill(x, d).output_values, any_(3), any_())
    fill_ragged = lambda x, d: raw.RaggedFillEmptyRows(
        value_rowids=long([1, 1, 3]), values=x, nrows=long(5), default_value=d
    )
    c.case("RaggedFillEmptyRows", lambda x, d: fill_ragged(x, d).output_values, any_(3), any_())


def products(c):
    for ta in (False, True):
        for tb in (False, True):
            build = lambda x, y, ta=ta, tb=tb: raw.SparseTensorDenseMatMul(
                a_indices=long(A), a_values=x, a_shape=long([2, 3]), b=y, adjoint_a=ta, adjoint_b=tb
            )
            shape = (2 if ta else 3, 4)
            c.case(
                f"SparseTensorDenseMatMul/{'adjoint' if ta else 'plain'}_{'adjoint' if tb else 'plain'}",
                build,
                any_(3),
                any_(*(shape[::-1] if tb else shape)),
                dtypes=("float", "double", "complex128"),
                unknown=ta == tb,
            )


def matrices(c):
    csr = lambda x: raw.SparseTensorToCSRSparseMatrix(indices=long(A), values=x, dense_shape=long([2, 3]))
    dense = lambda matrix, x: raw.CSRSparseMatrixToDense(sparse_input=matrix, type=x.dtype)
    kinds = dict(dtypes=("double", "complex128"), unknown=False)
    c.case("CSRSparseMatrixToDense", lambda x: dense(csr(x), x), any_(3), **kinds)
    c.case(
        "CSRSparseMatrixToSparseTensor",
        lambda x: raw.CSRSparseMatrixToSparseTensor(sparse_matrix=csr(x), type=x.dtype).values,
        any_(3),
        **kinds,
    )
    from_dense = lambda x: raw.DenseToCSRSparseMatrix(dense_input=x, indices=long(A))
    c.case("DenseToCSRSparseMatrix", lambda x: dense(from_dense(x), x), any_(2, 3), **kinds)
    turned = lambda x: raw.SparseMatrixTranspose(input=csr(x), type=x.dtype, conjugate=True)
    c.case("SparseMatrixTranspose", lambda x: dense(turned(x), x), any_(3), **kinds)
    for kind in ("plain", "adjoint"):
        both = {f"{kind}_{side}": True for side in "ab"} if kind != "plain" else {}
        sizes = (4, 2) if kind == "adjoint" else (3, 4)
        c.case(
            f"SparseMatrixMatMul/{kind}",
            lambda x, y, both=both: raw.SparseMatrixMatMul(a=csr(x), b=y, **both),
            any_(3),
            any_(*sizes),
            **kinds,
        )
    c.case(
        "SparseMatrixMatMul/transposed_output",
        lambda x, y: raw.SparseMatrixMatMul(a=csr(x), b=y, transpose_output=True, conjugate_output=True),
        any_(3),
        any_(3, 4),
        dtypes=("double",),
        unknown=False,
    )
    square = lambda x, y: raw.SparseMatrixSparseMatMul(a=csr(x), b=csr(y), type=x.dtype, adjoint_b=True)
    c.case("SparseMatrixSparseMatMul", lambda x, y: dense(square(x, y), x), any_(3), any_(3), **kinds)


def ragged(c):
    # Made anew in each case's graph.
    splits = lambda: long([0, 2, 2, 5])
    gather = lambda x: tf.gather(tf.RaggedTensor.from_row_splits(x, splits(), validate=False), [2, 0, 2]).flat_values
    c.case("RaggedGather", gather, any_(5))
    c.case("RaggedGather/wide", gather, any_(5, 2), unknown=False)
    to_sparse = lambda x: raw.RaggedTensorToSparse(rt_nested_splits=[splits()], rt_dense_values=x).sparse_values
    c.case("RaggedTensorToSparse", to_sparse, any_(5, 2))

    def dense(x, d, shape=(-1, -1), types=("ROW_SPLITS",), partitions=([0, 2, 2, 5],)):
        return raw.RaggedTensorToTensor(
            shape=long(shape),
            values=x,
            default_value=d,
            row_partition_tensors=[long(partition) for partition in partitions],
            row_partition_types=list(types),
        )

    c.case("RaggedTensorToTensor", dense, any_(5), any_())
    c.case("RaggedTensorToTensor/cut", lambda x, d: dense(x, d, (2, 1)), any_(5), any_())
    c.case("RaggedTensorToTensor/wide", lambda x, d: dense(x, d, (-1, -1, 2)), any_(5, 2), any_(2))
    c.case("RaggedTensorToTensor/one", lambda x, d: dense(x, d, (-1, -1, 2)), any_(5, 2), any_(1))
    rowids = lambda x, d: dense(x, d, (-1, -1), ("FIRST_DIM_SIZE", "VALUE_ROWIDS"), (3, [0, 0, 2, 2, 2]))
    c.case("RaggedTensorToTensor/rowids", rowids, any_(5), any_())

    def variant(x, batched=True):
        encoded = raw.RaggedTensorToVariant(rt_nested_splits=[splits()], rt_dense_values=x, batched_input=batched)
        return raw.RaggedTensorFromVariant(
            encoded_ragged=encoded, input_ragged_rank=-1, output_ragged_rank=1, Tvalues=x.dtype, Tsplits=tf.int64
        ).output_dense_values

    c.case("RaggedTensorToVariant", variant, any_(5), unknown=False)
    c.case("RaggedTensorToVariant/whole", lambda x: variant(x, False), any_(5), unknown=False)
    c.case("RaggedTensorToVariant/wide", variant, any_(5, 2), unknown=False)

    def composite(x):
        encoded = raw.CompositeTensorVariantFromComponents(components=[x, x * 2], metadata=b"")
        return raw.CompositeTensorVariantToComponents(encoded=encoded, metadata=b"", Tcomponents=[x.dtype, x.dtype])[1]

    c.case("CompositeTensorVariant", composite, any_(3), unknown=False)
