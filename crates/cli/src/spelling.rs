//! Spelling of arguments: flags with one dash, as programs of TensorFlow's first years take them (`-ps_hosts=a:1`),
//! and programs that are not after `--`.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Commands whose program comes after `--`.
const WITH_PROGRAM: [&str; 3] = ["run", "join", "submit"];

/// Prints why arguments are refused, and ends the process. A program that is not after `--` is the commonest mistake of
/// all, which the parser does not recognize.
pub(crate) fn refuse(error: &clap::Error, arguments: &[OsString]) -> ! {
    if let Some(program) = misplaced_program(error, arguments) {
        let _ = error.print();
        eprintln!("\n  tip: write the program and its arguments after --, as in: … -- {program} …");
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Returns the word that was refused, if it may be the program's name.
fn misplaced_program(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let command = arguments.get(1)?.to_str()?;
    if error.kind() != ErrorKind::UnknownArgument || !WITH_PROGRAM.contains(&command) {
        return None;
    }
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word))
            if !word.starts_with('-') && !arguments.iter().any(|word| word == "--") =>
        {
            Some(word.clone())
        }
        _ => None,
    }
}

/// Returns the arguments with a second dash before every long flag that has one dash. Those after `--` are a program's
/// own.
pub(crate) fn with_two_dashes<C: CommandFactory>(
    arguments: impl IntoIterator<Item = OsString>,
) -> Vec<OsString> {
    let mut flags = Vec::new();
    collect(&C::command(), &mut flags);
    let mut verbatim = false;
    let spell = |argument: OsString| {
        verbatim |= argument == "--";
        let name = argument.to_str().and_then(|text| text.strip_prefix('-'));
        let name = name.map(|text| text.split('=').next().unwrap_or(text));
        match name {
            Some(name) if !verbatim && flags.iter().any(|flag| flag == name) => {
                let mut spelled = OsString::from("-");
                spelled.push(argument);
                spelled
            }
            _ => argument,
        }
    };
    arguments.into_iter().map(spell).collect()
}

/// Collects the long flags of a command and those below it. One letter is a flag of its own.
fn collect(command: &clap::Command, flags: &mut Vec<String>) {
    for argument in command.get_arguments() {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        let names = argument.get_long().into_iter().chain(aliases);
        flags.extend(names.filter(|name| name.len() > 1).map(str::to_owned));
    }
    command.get_subcommands().for_each(|command| collect(command, flags));
}
