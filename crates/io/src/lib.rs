//! Bytes on disk: checkpoint bundles, tables, record and event files. Knows nothing of graphs, ops or steps.
