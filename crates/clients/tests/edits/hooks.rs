//! A `SessionEnd` hook in Claude Code's settings: put in, changed, taken out.
//! guards: `reap --uninstall --hook` gives back the bytes that Claude Code's settings had, also after a foreign edit.

use std::fs;

use mainstay_clients::plan::hook::{Unhook, are_off, hook, new_settings, unhook};
use mainstay_clients::refusal::Refusal;
use mainstay_clients::write;
use proptest::prelude::*;
use serde_json::{Value, json};

const COMMAND: &str = "/home/ann/.local/bin/mainstay reap";

fn hooked(old: &str, command: &str) -> String {
    let plan = hook(old.as_bytes(), command).unwrap_or_else(|why| panic!("{why}\n{old}"));
    String::from_utf8(plan.new_bytes().to_vec()).unwrap()
}

/// None: the file is removed.
fn unhooked(old: &str) -> Option<String> {
    match unhook(old.as_bytes()).unwrap_or_else(|why| panic!("{why}\n{old}")) {
        Unhook::Edit(plan) => Some(String::from_utf8(plan.new_bytes().to_vec()).unwrap()),
        Unhook::RemoveFile => None,
    }
}

fn groups(text: &str) -> Vec<Value> {
    let value: Value = serde_json::from_str(text).unwrap();
    value["hooks"]["SessionEnd"].as_array().unwrap().clone()
}

/// Everything that stood in settings so far, in many layouts.
const SETTINGS: [&str; 14] = [
    "{}",
    "{ }\n",
    "{\n}\n",
    "{\r\n\t\"model\": \"opus\"\r\n}\r\n",
    r#"{"model":"opus"}"#,
    r#"{"hooks":{}}"#,
    r#"{"hooks":{ },"model":"opus"}"#,
    r#"{"hooks":{"SessionEnd":[]}}"#,
    r#"{"hooks":{"SessionEnd":[ ]}}"#,
    "{\n  \"hooks\": {\n    \"PreToolUse\": [{\"matcher\": \"Bash\", \"hooks\": []}]\n  }\n}\n",
    "{\n  \"hooks\": {\n    \"SessionEnd\": [\n      {\n        \"hooks\": [{\"type\": \"command\", \"command\": \"sync\"}]\n      }\n    ]\n  }\n}\n",
    "{\"hooks\": {\"SessionEnd\": [{\"matcher\": \"clear\", \"hooks\": [{\"type\": \"command\", \"command\": \"x\"}]}], \"Stop\": []}}",
    "\u{feff}{\n  // mine, {\n  \"model\": \"opus\", // last\n}\n",
    "{\"hooks\": {\"Stop\": [], /* here: [ */ }, }",
];

#[test]
fn the_old_bytes_come_back() {
    for old in SETTINGS {
        let new = hooked(old, COMMAND);
        assert_ne!(new, old);
        assert_eq!(unhooked(&new).as_deref(), Some(old), "{new}");
        assert_eq!(hooked(&new, COMMAND), new, "twice is once");
        // Another command takes the place of the first, and the way back is the same.
        let other = hooked(&new, "/usr/bin/mainstay reap --yes");
        assert_eq!(other, new.replace(COMMAND, "/usr/bin/mainstay reap --yes"));
        assert_eq!(unhooked(&other).as_deref(), Some(old));
        assert_eq!(
            unhooked(old).as_deref(),
            Some(old),
            "without a hook nothing changes"
        );
    }
    let made = String::from_utf8(new_settings(COMMAND)).unwrap();
    assert_eq!(unhooked(&made), None);
    assert_eq!(hooked(&made, COMMAND), made);
}

#[test]
fn it_is_where_claude_looks() {
    let own = json!([{"type": "command", "command": COMMAND}]);
    assert_eq!(
        groups(&hooked(
            "{\"hooks\":{\"SessionEnd\":[{\"hooks\":[]}]}}",
            COMMAND
        )),
        [json!({"hooks": own}), json!({"hooks": []})]
    );
    assert_eq!(
        groups(&hooked("{\"hooks\":{}}", COMMAND)),
        [json!({"matcher": "", "hooks": own})]
    );
    assert_eq!(
        groups(&hooked("{}", COMMAND)),
        [json!({"matcher": "*", "hooks": own})]
    );
    let made = String::from_utf8(new_settings(COMMAND)).unwrap();
    assert_eq!(groups(&made), [json!({"matcher": ".*", "hooks": own})]);
}

/// Claude Code writes the whole file anew, and the user adds hooks before and behind ours.
#[test]
fn what_others_add_stays() {
    let other = r#"{"hooks": [{"type": "command", "command": "sync"}]}"#;
    for old in ["{}", r#"{"hooks":{}}"#, r#"{"hooks":{"SessionEnd":[]}}"#] {
        let new = hooked(old, COMMAND);
        let list = "\"SessionEnd\": [";
        let new = new.replace("\"SessionEnd\":[", list);
        let before = new.replace(list, &format!("{list}{other}, "));
        let after = before.replacen("}]}]}", &format!("}}]}}, {other}]}}"), 1);
        for (text, count) in [(before, 1), (after, 2)] {
            let text = unhooked(&text).unwrap();
            assert_eq!(groups(&text).len(), count, "{text}");
            assert!(!text.contains("reap"), "{text}");
        }
        let value: Value = serde_json::from_str(&new).unwrap();
        let rewritten = serde_json::to_string_pretty(&value).unwrap();
        let back: Value = serde_json::from_str(&unhooked(&rewritten).unwrap()).unwrap();
        assert_eq!(back, serde_json::from_str::<Value>(old).unwrap());
    }
    let made = String::from_utf8(new_settings(COMMAND)).unwrap();
    let more = made.replacen('{', "{\"model\": \"opus\",", 1);
    let back: Value = serde_json::from_str(&unhooked(&more).unwrap()).unwrap();
    assert_eq!(back, json!({"model": "opus"}));
}

#[test]
fn what_is_no_settings_or_was_written_by_hand_is_refused() {
    let by_hand = |group: &str| format!(r#"{{"hooks":{{"SessionEnd":[{group}]}}}}"#);
    let ours = r#"{"type":"command","command":"mainstay reap"}"#;
    for text in [
        by_hand(&format!(
            r#"{{"hooks":[{ours},{{"type":"command","command":"x"}}]}}"#
        )),
        by_hand(&format!(r#"{{"matcher":"logout","hooks":[{ours}]}}"#)),
        by_hand(&format!(r#"{{"hooks":[{ours}]}},{{"hooks":[{ours}]}}"#)),
    ] {
        assert_eq!(unhook(text.as_bytes()).unwrap_err(), Refusal::HookByHand);
        assert_eq!(
            hook(text.as_bytes(), COMMAND).unwrap_err(),
            Refusal::HookByHand
        );
    }
    // What an older version told people to paste.
    let pasted = by_hand(&format!(r#"{{"hooks":[{ours}]}}"#));
    assert_eq!(unhooked(&pasted).unwrap(), by_hand(""));
    for text in [
        "",
        " \n",
        "[]",
        r#"{"hooks":[]}"#,
        r#"{"hooks":{"SessionEnd":{}}}"#,
    ] {
        let refusal = hook(text.as_bytes(), COMMAND).unwrap_err();
        assert!(
            matches!(refusal, Refusal::NotSettings { .. }),
            "{text}: {refusal}"
        );
    }
    assert!(matches!(hook(b"{", COMMAND), Err(Refusal::Syntax { .. })));
}

#[test]
fn settings_can_switch_hooks_off() {
    assert!(are_off(b"{\"disableAllHooks\": true}"));
    assert!(are_off(b"{\"allowManagedHooksOnly\": true}"));
    for on in ["{}", "{\"disableAllHooks\": false}", "{", ""] {
        assert!(!are_off(on.as_bytes()), "{on}");
    }
}

proptest! {
    /// Damage at any place: it is refused, or taken out exactly.
    #[test]
    fn damaged_settings_are_refused_or_come_back(
        old in prop::sample::select(SETTINGS.to_vec()),
        at in any::<prop::sample::Index>(),
        with in prop_oneof![Just("\""), Just(","), Just("\n"), Just("["), Just("{}"), Just("/**/"), Just("1")],
    ) {
        let mut place = at.index(old.len() + 1);
        while !old.is_char_boundary(place) {
            place -= 1;
        }
        let damaged = format!("{}{with}{}", &old[..place], &old[place..]);
        if let Ok(plan) = hook(damaged.as_bytes(), COMMAND) {
            let new = String::from_utf8(plan.new_bytes().to_vec()).unwrap();
            prop_assert_eq!(unhooked(&new), Some(damaged));
        }
    }
}

/// A file is made where none is, and removed only while it holds what was made.
#[test]
fn settings_are_made_and_removed_whole_or_not_at_all() {
    let folder = crate::writing::scratch("hooks");
    let backups = folder.join("backups");
    let path = folder.join("settings.json");
    let bytes = new_settings(COMMAND);
    write::create(&path, &backups, &bytes).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let again = write::create(&path, &backups, b"other").unwrap_err();
    assert!(again.to_string().starts_with("cannot make "), "{again}");
    assert_eq!(fs::read(&path).unwrap(), bytes, "what is there stays");
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        2,
        "nothing else is left"
    );
    // The client has written: it is not ours to remove.
    fs::write(&path, "{}").unwrap();
    let ours = |now: &[u8]| now == bytes;
    assert!(write::remove(&path, &backups, &ours).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"{}");
    fs::write(&path, &bytes).unwrap();
    let kept = write::remove(&path, &backups, &ours).unwrap();
    assert!(!path.exists());
    assert_eq!(fs::read(kept).unwrap(), bytes);
    assert!(write::remove(&path, &backups, &ours).is_err(), "it is gone");
}
