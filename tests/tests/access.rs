//! Users of one machine: whose connections a server accepts.

use crate::served::Served;
use crate::{binary, stock};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A user that owns nothing. The tests are not its own.
const OTHER: u32 = 65_431;

/// Whether the tests may become another user; otherwise says that they are skipped.
fn is_root() -> bool {
    let user = Command::new("id").arg("-u").output().expect("id starts");
    let root = user.stdout == b"0\n";
    if !root {
        eprintln!("skipped: only root becomes another user");
    }
    root
}

#[test]
fn other_users_of_the_machine_are_refused_unless_they_are_allowed() {
    let Some(python) = stock::python() else { return };
    if !is_root() {
        return;
    }
    let mut closed = Served::start(binary::command(&[]), &[]);
    let open = Served::start(binary::command(&[]), &["--allow-local-users"]);
    let mut asked = Command::new(python);
    asked.arg(stock::root().join("oracle/other_user.py")).arg(OTHER.to_string());
    let asked = asked.args([&closed.target, &open.target]).output().expect("the interpreter starts");
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    let [refused, allowed] = lines[..] else { panic!("{said}{}", String::from_utf8_lossy(&asked.stderr)) };
    assert!(refused.starts_with("session 0 PermissionDeniedError"), "{refused}");
    assert!(
        refused.contains(&format!("user {OTHER}")) && refused.contains("--allow-local-users"),
        "{refused}"
    );
    assert_eq!(allowed, "session 1 42");
    assert!(closed.log_line("A connection was refused").contains(&format!("user {OTHER}")));
}

#[test]
fn a_task_of_another_user_is_refused_by_the_ports_owner() {
    if !is_root() {
        return;
    }
    let server = Served::start(binary::command(&[]), &[]);
    let ping = |user: Option<u32>| {
        let mut command = binary::command(&["ping", &server.target]);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let told = command.output();
        told.map(|told| (told.status.success(), String::from_utf8_lossy(&told.stderr).into_owned()))
    };
    let (admitted, said) = ping(None).expect("the binary starts");
    assert!(admitted, "{said}");
    // The binary may lie where the other user cannot read it.
    let Ok((admitted, said)) = ping(Some(OTHER)) else {
        return eprintln!("skipped: others cannot run {:?}", binary::path());
    };
    assert!(!admitted && said.contains(&format!("user {OTHER}")), "{said}");
}
