//! Environments as Slurm 22.05 sets them.

use super::*;
use crate::Role;
use ferroflow_core::Code;

fn step(nodes: &str, counts: &str, rank: u32, host: &str, more: &[(&str, &str)]) -> Environment {
    let size: u32 = layout::counts(counts).unwrap().iter().sum();
    let fixed = [
        ("SLURM_JOB_ID", "7".to_owned()),
        ("SLURM_STEP_ID", "2".to_owned()),
        ("SLURM_STEP_NODELIST", nodes.to_owned()),
        ("SLURM_STEP_TASKS_PER_NODE", counts.to_owned()),
        ("SLURM_STEP_NUM_TASKS", size.to_string()),
        ("SLURM_PROCID", rank.to_string()),
        ("SLURMD_NODENAME", host.to_owned()),
    ];
    let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
    fixed.into_iter().chain(more).collect()
}

fn resolve(environment: &Environment) -> Result<Role> {
    let jobs = Some("ps:1,worker:*".parse()?);
    Role::resolve(&RoleRequest { jobs, ..RoleRequest::default() }, environment)
}

fn addresses(environment: &Environment) -> String {
    let role = resolve(environment).unwrap();
    role.cluster.tasks().map(|(_, address)| address.to_owned()).collect::<Vec<_>>().join(" ")
}

#[test]
fn nodes_keep_their_order_and_every_distribution_is_followed() {
    let block = step("n[9-11]", "2(x2),1", 2, "n10", &[("SLURM_GTIDS", "2,3")]);
    assert_eq!(addresses(&block), "n9:8888 n9:8889 n10:8888 n10:8889 n11:8888");
    let role = resolve(&block).unwrap();
    assert_eq!(
        (role.task.job.as_str(), role.task.task, role.run_id.as_deref()),
        ("worker", 1, Some("slurm.7.2.0"))
    );
    let cyclic = [("SLURM_DISTRIBUTION", "cyclic:block"), ("SLURM_GTIDS", "1,4")];
    assert_eq!(
        addresses(&step("n[1-3]", "2(x2),1", 1, "n2", &cyclic)),
        "n1:8888 n2:8888 n3:8888 n1:8889 n2:8889"
    );
    let plane = [("SLURM_DISTRIBUTION", "plane"), ("SLURM_DIST_PLANESIZE", "2")];
    assert_eq!(
        addresses(&step("n[1-2]", "4,3", 2, "n2", &plane)),
        "n1:8888 n1:8889 n2:8888 n2:8889 n1:8890 n1:8891 n2:8890"
    );
}

#[test]
fn parts_of_a_heterogeneous_step_are_laid_out_one_after_the_other() {
    let het = [
        ("SLURM_HET_SIZE", "2"),
        ("SLURM_NTASKS_HET_GROUP_0", "1"),
        ("SLURM_NTASKS_HET_GROUP_1", "3"),
        ("SLURM_DISTRIBUTION", "cyclic"),
    ];
    assert_eq!(addresses(&step("n1,n[1-2]", "1,2,1", 2, "n2", &het)), "n1:8888 n1:8889 n2:8888 n1:8890");
}

#[test]
fn a_file_of_hosts_is_followed() {
    let path = std::env::temp_dir().join(format!("ferroflow-hosts-{}", std::process::id()));
    std::fs::write(&path, "n2\nn1\nn2\n").unwrap();
    let file = path.to_str().unwrap();
    let arbitrary = [("SLURM_DISTRIBUTION", "arbitrary"), ("SLURM_HOSTFILE", file)];
    assert_eq!(addresses(&step("n2,n1", "2,1", 1, "n1", &arbitrary)), "n2:8888 n1:8888 n2:8889");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_slurm_says_of_this_process_must_agree() {
    let refused = |environment: &Environment| resolve(environment).unwrap().located().unwrap_err();
    let elsewhere = refused(&step("n[1-2]", "2,1", 1, "n2", &[]));
    assert_eq!(elsewhere.code(), Code::FailedPrecondition);
    assert!(elsewhere.message().contains("computed to be on n1, but runs on n2"), "{elsewhere}");
    let neighbors = refused(&step("n[1-2]", "2,1", 0, "n1", &[("SLURM_GTIDS", "0,2")]));
    assert!(neighbors.message().contains("runs the ranks 0,2"), "{neighbors}");
    let plane = refused(&step("n1", "2", 0, "n1", &[("SLURM_DISTRIBUTION", "plane")]));
    assert!(plane.message().contains("unknown size"), "{plane}");
}

#[test]
fn outside_a_step_the_advice_is_srun() {
    let batch: Environment =
        [("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "3")].into_iter().collect();
    assert!(resolve(&batch).unwrap_err().message().contains("start it with srun"));
    let request = RoleRequest::default();
    assert_eq!(Role::resolve(&request, &batch).unwrap().source, crate::Source::Local);
    let no_jobs = Role::resolve(&request, &step("n[1-2]", "1(x2)", 1, "n2", &[])).unwrap_err();
    assert!(no_jobs.message().contains("add e.g. --jobs"), "{no_jobs}");
    let interactive = Role::resolve(&request, &step("n1", "1", 0, "n1", &[])).unwrap();
    assert!(interactive.notes[0].contains("started this process alone"));
}
