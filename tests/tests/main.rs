//! Everything that the standard test harness runs.

/// Every declaration against stock's op list, and every op against the goldens.
mod declarations;

/// Conditionals, loops, functions and imported graphs.
mod flow;

/// Graphs that Rust programs build and differentiate.
mod graphs;

/// Results on machines with one thread and with several.
mod threads;

/// The gradient of every op against stock's.
mod gradients;

/// Optimizers, schedules and moving averages of Rust programs, against stock's.
mod optimizers;

/// The examples that programs are learned from.
mod examples;

/// Scenarios of a stock client, on our server and on stock's.
mod interop;

/// Ops and functions that a stock client runs on our servers one at a time.
mod eager;

/// The base of all scripts that ask stock.
mod oracle;

/// Our client on stock's servers.
mod client;

/// Sessions of Rust programs, on our servers and stock's.
mod sessions;

/// Checkpoints of Rust programs, which stock reads, continues and writes.
mod savers;

/// Checkpoints of stock, listed, compared and exported by our command.
mod exports;

/// Training loops of Rust programs in clusters.
mod monitored;

/// Functions that a coordinator schedules on workers.
mod coordinator;

/// Where nodes run, in clusters of several tasks.
mod placement;

/// Clusters of stock's tasks and ours, with faults.
mod clusters;

/// The demonstration: a cluster of processes that trains a classifier.
mod demo;

/// Roles: where tasks learn who they are, and whether they agree.
mod roles;
/// Jobs for cluster managers, completions and the manual.
mod submit;

/// Clusters of this machine: programs on them, their start and their end.
mod launch;

/// The commands of the README.
mod first_page;

/// Tasks that find each other, run programs or serve them, and end by themselves.
mod rendezvous;

/// Log lines of Rust programs.
mod logging;

/// Servers under limits of memory and files, floods, and signals.
mod limits;

/// Users of a machine, and the servers that they may use.
mod access;

/// Counts of a server, for browsers and scrapers.
mod scraping;

/// Mistakes of programs, and what is said of them.
mod misuse;

/// Record files, event files and datasets, with stock on the other side.
mod files;

/// The `ferroflow` binary.
mod binary;
/// Initial values, losses, metrics and small models, step by step.
mod training;

/// Ferroflow servers in processes of their own.
mod served;

/// Ports that nobody else is given while the tests run.
mod ports;
/// Where stock TensorFlow is.
mod stock;
