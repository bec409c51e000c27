//! Man pages and completions for shells, from the same definitions as `--help`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::cli::adopt::{clients, word};

/// Commands whose argument is a server, and which servers `mainstay complete` offers for it.
const NAMES: [(&str, &str); 5] = [
    ("stop", "running"),
    ("restart", "running"),
    ("tap", "running"),
    ("why", "known"),
    ("logs", "known"),
];

/// Commands whose arguments are clients.
const OF_CLIENTS: [&str; 2] = ["adopt", "release"];

/// Marks an argument that is a server, and the zsh function that clap writes for the mark. No argument of ours is a host or a user.
const MARKS: [(&str, ValueHint, &str); 2] = [
    ("running", ValueHint::Hostname, "_hosts"),
    ("known", ValueHint::Username, "_users"),
];

#[test]
fn man_pages_are_up_to_date() {
    let mut cli = visible(&Cli::command())
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true);
    cli.build();
    let mut pages = Vec::new();
    add_pages(&cli, &mut pages);
    assert!(pages.len() > 20, "{} pages", pages.len());
    compare_folder("man", &pages);
}

#[test]
fn completions_are_up_to_date() {
    let files = [
        ("mainstay.bash".to_owned(), bash()),
        ("_mainstay".to_owned(), zsh()),
        ("mainstay.fish".to_owned(), fish()),
    ];
    for (name, text) in &files {
        for hidden in ["guardian", "--role", "debts"] {
            assert!(!text.contains(hidden), "{name} offers {hidden}");
        }
    }
    compare_folder("completions", &files);
}

/// The same command without what is hidden, because neither generator leaves that out.
fn visible(command: &Command) -> Command {
    // Names of commands are static, but clap does not say so.
    let name: &'static str = command.get_name().to_owned().leak();
    let mut copy = Command::new(name)
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()))
        // A group may name a hidden argument only if the copy has it.
        .groups(command.get_groups().filter(|group| {
            group.get_args().all(|id| {
                let named = command.get_arguments().find(|arg| arg.get_id() == id);
                named.is_some_and(|arg| !arg.is_hide_set())
            })
        }))
        .subcommands(
            command
                .get_subcommands()
                .filter(|below| !below.is_hide_set())
                .map(visible),
        );
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(after) = command.get_after_help() {
        copy = copy.after_help(after.clone());
    }
    copy
}

fn add_pages(command: &Command, pages: &mut Vec<(String, String)>) {
    let man = Man::new(command.clone());
    let file = man.get_filename();
    let title = file.strip_suffix(".1").expect("a page of section 1");
    // Written here, because clap_mangen leaves out an empty date, and then the version is taken for the date.
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(
        ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n.TH {title} 1 \"\" \"mainstay {version}\" \"mainstay\"\n"
    )
    .into_bytes();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_options_section(&mut page).unwrap();
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page).unwrap();
    }
    let mut page = String::from_utf8(page).unwrap();
    if let Some(after) = command.get_after_help() {
        page += &after_help(&after.to_string());
    }
    pages.push((file, page));
    for below in command.get_subcommands() {
        add_pages(below, pages);
    }
}

/// The examples as they stand, then the text below them as paragraphs.
fn after_help(text: &str) -> String {
    let (examples, notes) = text.split_once("\n\n").unwrap_or((text, ""));
    let examples = examples
        .strip_prefix("Examples:\n")
        .unwrap_or_else(|| panic!("no examples: {examples}"));
    let mut page = format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", roff(examples));
    if !notes.is_empty() {
        page += ".SH NOTES\n";
        page += &roff(notes).replace("\n\n", "\n.PP\n");
        page += "\n";
    }
    page
}

/// Text that troff shows as it is.
fn roff(text: &str) -> String {
    let mut escaped = text.replace('\\', "\\e").replace('-', "\\-");
    for control in ['.', '\''] {
        escaped = escaped.replace(&format!("\n{control}"), &format!("\n\\&{control}"));
    }
    escaped
}

/// The file that clap makes for this shell.
fn generated(shell: Shell) -> String {
    let mut cli = visible(&Cli::command());
    for (verb, which) in names() {
        let mark = MARKS.iter().find(|(name, _, _)| *name == which);
        let (_, hint, _) = mark.expect("each has a mark");
        cli = cli.mut_subcommand(verb, |verb| {
            let first = verb.get_positionals().next().expect("it names servers");
            let id = first.get_id().clone();
            verb.mut_arg(id, |arg| arg.value_hint(*hint))
        });
    }
    let words = client_words();
    cli = cli.mut_subcommands(|verb| match verb.get_name() {
        name if OF_CLIENTS.contains(&name) => verb.mut_arg("clients", |arg| {
            arg.value_parser(PossibleValuesParser::new(&words))
        }),
        _ => verb,
    });
    let mut file = Vec::new();
    clap_complete::generate(shell, &mut cli, "mainstay", &mut file);
    String::from_utf8(file).unwrap()
}

/// The words that people type for clients.
fn client_words() -> Vec<&'static str> {
    let clients = clients(&[]).expect("all are known");
    let words = clients.into_iter().map(|client| &*word(client).leak());
    words.collect()
}

/// The rows of [`NAMES`] whose command exists.
fn names() -> Vec<(&'static str, &'static str)> {
    let cli = Cli::command();
    let mut names = NAMES.to_vec();
    names.retain(|(verb, _)| cli.find_subcommand(verb).is_some());
    names
}

/// The options of a command that take a value, as they are typed.
fn with_value(verb: &str) -> Vec<String> {
    let cli = visible(&Cli::command());
    let verb = cli.find_subcommand(verb).expect("it exists");
    let mut words = Vec::new();
    for option in verb.get_arguments() {
        if !option.get_action().takes_values() {
            continue;
        }
        words.extend(option.get_long().map(|long| format!("--{long}")));
        words.extend(option.get_short().map(|short| format!("-{short}")));
    }
    words
}

fn bash() -> String {
    let file = generated(Shell::Bash);
    let own = file.replace(
        "complete -F _mainstay -o",
        "complete -F _mainstay_or_server -o",
    );
    assert_ne!(file, own, "clap registers its function in another way");
    let mut cases = String::new();
    for (verb, which) in names() {
        let values = with_value(verb);
        if !values.is_empty() {
            let each: Vec<String> = values.iter().map(|one| format!("{verb}:{one}")).collect();
            cases += &format!("        {}) ;;\n", each.join("|"));
        }
        cases += &format!("        {verb}:*) which={which} ;;\n");
    }
    format!(
        r#"{own}
# Where the argument is a server, mainstay itself prints the names and ids. Everything else is clap's.
_mainstay_or_server() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} which='' word
    case ${{COMP_WORDS[1]}}:${{COMP_WORDS[COMP_CWORD-1]}} in
{cases}    esac
    if [[ -z $which || $COMP_CWORD -lt 2 || $cur == -* ]]; then
        _mainstay "$@"
        return
    fi
    # No file names if there is no server.
    compopt +o default +o bashdefault 2>/dev/null
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        if [[ $word == "$cur"* ]]; then
            COMPREPLY+=("$(printf %q "$word")")
        fi
    done < <("${{1/#\~/$HOME}}" complete "$which" 2>/dev/null)
}}
"#
    )
}

fn zsh() -> String {
    let mut file = generated(Shell::Zsh);
    // After a space, zsh calls the function with these words alone.
    for (which, _, function) in MARKS {
        let own = file.replace(
            &format!(":{function}'"),
            &format!(": _mainstay_servers {which}'"),
        );
        assert_ne!(file, own, "clap writes the argument in another way");
        file = own;
    }
    // Its last lines call or register the function, so ours has to stand before them.
    let end = file
        .rfind("\nif [ \"$funcstack[1]\" = \"_mainstay\" ]")
        .expect("clap ends the file in another way");
    let servers = r#"
# The names and ids of servers, as mainstay itself prints them.
(( $+functions[_mainstay_servers] )) ||
_mainstay_servers() {
    local -a servers
    local line
    for line in "${(@f)$(_call_program servers mainstay complete $1 2>/dev/null)}"; do
        [[ -n $line ]] && servers+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    _describe -V server servers
}
"#;
    file.insert_str(end, servers);
    file
}

fn fish() -> String {
    let mut file = generated(Shell::Fish);
    file += "\n# The names of clients. clap offers no words for arguments in fish.\n";
    let words = client_words().join(" ");
    for verb in OF_CLIENTS {
        file += &format!(
            "complete -c mainstay -n \"__fish_mainstay_using_subcommand {verb}\" -f -a \"{words}\"\n"
        );
    }
    file += "\n# The names and ids of servers, as mainstay itself prints them.\n";
    for (verb, which) in names() {
        file += &format!(
            "complete -c mainstay -n \"__fish_mainstay_using_subcommand {verb}\" -f -k -a \"(mainstay complete {which} 2>/dev/null)\"\n"
        );
    }
    file
}

/// Compares a folder below `packaging` with what it should hold; `MAINSTAY_BLESS=1` writes it first.
fn compare_folder(name: &str, files: &[(String, String)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(name);
    if std::env::var_os("MAINSTAY_BLESS").is_some() {
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
    }
    let mut kept: Vec<PathBuf> = fs::read_dir(&folder)
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default();
    kept.retain(|path| !files.iter().any(|(file, _)| path.ends_with(file)));
    assert!(kept.is_empty(), "not generated any more: {kept:?}");
    for (file, text) in files {
        let kept = fs::read_to_string(folder.join(file)).unwrap_or_default();
        assert!(
            kept == *text,
            "packaging/{name}/{file} is not up to date: MAINSTAY_BLESS=1 cargo test -p mainstay --lib reference"
        );
    }
}
