//! Flags with one dash, as programs of TensorFlow's first years take them: `-ps_hosts=a:1`.

use clap::CommandFactory;
use std::ffi::OsString;

/// The arguments with a second dash before every long flag that has one dash. What follows `--` is a program's own.
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

/// Long flags of a command and those below it. One letter is a flag of its own.
fn collect(command: &clap::Command, flags: &mut Vec<String>) {
    for argument in command.get_arguments() {
        let aliases = argument.get_all_aliases().unwrap_or_default();
        let names = argument.get_long().into_iter().chain(aliases);
        flags.extend(names.filter(|name| name.len() > 1).map(str::to_owned));
    }
    command.get_subcommands().for_each(|command| collect(command, flags));
}
