//! Tells all processes of a launch a word and prints what they told: `srun --mpi=pmi2 -n3 pmi_exchange here`.

fn main() -> ferroflow_core::Result<()> {
    let own = std::env::args().nth(1).unwrap_or_else(|| std::process::id().to_string());
    println!("{}", ferroflow_discovery::pmi::exchange(&own)?.join(" "));
    Ok(())
}
