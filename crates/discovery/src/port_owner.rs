//! The owner of a port that another task wants, as far as the system tells.

use std::fs;

/// The process that listens on a port of this machine, or is connected from it: `process 4711 (python)`. `None` if
/// there is none, or it is another user's.
pub fn owner_of_port(port: u16) -> Option<String> {
    let sockets = sockets_at(port);
    let processes = fs::read_dir("/proc").ok()?.flatten();
    for process in processes {
        let (path, name) = (process.path(), process.file_name());
        let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(files) = fs::read_dir(path.join("fd")) else { continue };
        let mut links = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        if links.any(|link| link.to_str().is_some_and(|link| sockets.iter().any(|socket| socket == link))) {
            let command = fs::read_to_string(path.join("comm")).unwrap_or_default();
            return Some(format!("process {id} ({})", command.trim()));
        }
    }
    None
}

/// Sockets at a port as they appear among the files of a process, listening ones first.
fn sockets_at(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables: Vec<String> = tables.iter().filter_map(|table| fs::read_to_string(table).ok()).collect();
    let mut found: Vec<(bool, String)> =
        tables.iter().flat_map(|table| table.lines().filter_map(|line| socket_at(line, port))).collect();
    found.sort();
    found.into_iter().map(|(_, socket)| socket).collect()
}

/// Reads a line of the system's table: for a socket at this port, whether it does not listen, and its name.
fn socket_at(line: &str, port: u16) -> Option<(bool, String)> {
    let mut words = line.split_whitespace();
    let (local, state) = (words.nth(1)?, words.nth(1)?);
    let inode: u64 = words.nth(5)?.parse().ok()?;
    let (_, number) = local.rsplit_once(':')?;
    let there = u16::from_str_radix(number, 16) == Ok(port) && inode != 0;
    there.then(|| (state != LISTENING, format!("socket:[{inode}]")))
}

const LISTENING: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = owner_of_port(listener.local_addr().unwrap().port()).unwrap();
        assert!(owner.starts_with(&format!("process {} (", std::process::id())), "{owner}");
    }

    #[test]
    fn lines_of_the_table_are_read() {
        let line = " 1: 0100007F:08AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4242 1 0";
        assert_eq!(socket_at(line, 2222), Some((false, "socket:[4242]".to_owned())));
        assert_eq!(socket_at(line, 2223), None);
        assert_eq!(socket_at("sl local_address rem_address st", 2222), None);
    }
}
