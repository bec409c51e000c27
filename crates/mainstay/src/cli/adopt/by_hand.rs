//! `adopt --print CLIENT`: what to write by hand, for people who do not want a program in their config.

use std::fmt::Write as _;

use mainstay_clients::plan::{self, Adopt};
use mainstay_clients::profile::{Client, ConfigFile, Scope, Words};
use mainstay_clients::write;
use mainstay_report::Report;

use super::scope::Here;
use mainstay_report::printer::Printer;

/// Prints where the client's files are, and the words for each server in them.
pub fn print(
    printer: &mut Printer,
    client: &'static Client,
    here: &Here,
    wish: &Adopt,
) -> Result<(), Report> {
    let mut text = format!("{} reads\n", client.name);
    let editable = |file: &&ConfigFile| file.never.is_none() && file.scope != Scope::Machine;
    for file in client.config.files.iter().filter(editable) {
        for path in here.around.places(file.place) {
            push(&mut text, format_args!("  {}\n", here.show(&path)));
        }
    }
    let names = names(client, here, wish);
    let names = if names.is_empty() {
        vec!["NAME".to_owned()]
    } else {
        names
    };
    text.push_str("\nPut these words before the old command and its arguments:\n");
    for name in names {
        let words = wish.words_before(&name, &[]);
        let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
        match client.config.entry.words.first() {
            Some(Words::Joined { command }) => push(
                &mut text,
                format_args!(
                    "  {command}: [{}, OLD COMMAND, OLD ARGUMENTS…]\n",
                    quoted.join(", ")
                ),
            ),
            Some(Words::Split { command, args, .. }) => {
                let (program, rest) = (&quoted[0], quoted[1..].join(", "));
                push(
                    &mut text,
                    format_args!(
                        "  {command}: {program}\n  {args}: [{rest}, OLD COMMAND, OLD ARGUMENTS…]\n"
                    ),
                );
            }
            None => {}
        }
    }
    push(
        &mut text,
        format_args!("\nThen, in {}: {}\n", client.name, client.config.after_edit),
    );
    printer.text(&text)?;
    Ok(())
}

/// Servers of the client that are not adopted, or all of them.
fn names(client: &'static Client, here: &Here, wish: &Adopt) -> Vec<String> {
    let mut names = Vec::new();
    for found in here.find_files(&[client]) {
        let Ok(bytes) = write::read(&found.path) else {
            continue;
        };
        let Ok(plan) = plan::adopt(&bytes, found.client, found.file, wish) else {
            continue;
        };
        let changing = plan.entries().iter().filter(|entry| entry.action.changes());
        names.extend(changing.map(|entry| entry.name.clone()));
    }
    names
}

fn quote(word: &str) -> String {
    serde_json::Value::from(word).to_string()
}

fn push(text: &mut String, more: std::fmt::Arguments<'_>) {
    // A string takes everything.
    text.write_fmt(more).ok();
}
