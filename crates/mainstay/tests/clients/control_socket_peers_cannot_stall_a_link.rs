//! However a process behaves that connects to a keeper, the link goes on, and `stop` still gets a connection.
//! guards: A process on the control socket can neither stall a link nor keep other commands out.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use crate::support::scene::Scene;
use crate::support::tapping::{connect, saying};
use serde_json::{Value, json};

fn first_line(stream: UnixStream) -> Value {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|_| panic!("no line: {line:?}"))
}

fn works(scene: &mut Scene, what: &str) {
    let said = json!({"text": what});
    assert_eq!(scene.call("echo", &said), said);
}

#[test]
fn garbage_and_endless_lines_on_the_control_socket_do_not_stall_a_link() {
    let mut scene = Scene::open(&[], &[]);
    let directory = scene.stage.card().dir;
    let garbage = saying(&directory, b"\xff\xfe{]\n");
    assert_eq!(first_line(garbage)["ok"], false);
    works(&mut scene, "after garbage");
    // Sends as much of one endless line as the keeper takes, at most a gigabyte.
    let mut endless = connect(&directory);
    let piece = vec![b'x'; 64 * 1024];
    let mut sent = 0usize;
    let refused = loop {
        match endless.write(&piece) {
            Ok(len) => sent += len,
            Err(error) => break error.kind(),
        }
        assert!(sent < 1 << 30, "it is never refused");
    };
    assert!(matches!(
        refused,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    ));
    assert!(sent < 4 << 20, "{sent} bytes were taken");
    works(&mut scene, "after an endless line");
    let half = saying(&directory, b"{\"do\":\"sta");
    half.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    (&half).read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty(), "it is let go without an answer");
    // It sends more after its request, and is disconnected.
    let mut babble = saying(&directory, b"{\"do\":\"restart\"}\n");
    let refused = loop {
        if let Err(error) = babble.write(&piece) {
            break error.kind();
        }
    };
    assert!(matches!(
        refused,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    ));
    works(&mut scene, "after babble");
    scene.finish();
}

#[test]
fn slow_peers_of_the_control_socket_do_not_stall_a_link() {
    let mut scene = Scene::open(&[], &[]);
    let directory = scene.stage.card().dir;
    let mut slow = connect(&directory);
    let mut answers = Vec::new();
    for byte in b"{\"do\":\"status\"}\n" {
        slow.write_all(&[*byte]).unwrap();
        works(&mut scene, "between two bytes");
    }
    assert_eq!(first_line(slow)["ok"], true);
    for _ in 0..200 {
        // It never reads the answer.
        answers.push(saying(&directory, b"{\"do\":\"status\"}\n"));
    }
    works(&mut scene, "before silent readers");
    scene.finish();
}

#[test]
fn ten_thousand_control_connections_leave_no_descriptor() {
    let mut scene = Scene::open(&[], &[]);
    let directory = scene.stage.card().dir;
    let descriptors = |scene: &Scene| {
        let keeper = scene.stage.card().keeper.unwrap().pid;
        std::fs::read_dir(format!("/proc/{keeper}/fd"))
            .unwrap()
            .count()
    };
    works(&mut scene, "before");
    let before = descriptors(&scene);
    for n in 0..10_000 {
        drop(connect(&directory));
        if n % 1_000 == 0 {
            works(&mut scene, "in between");
        }
    }
    assert_eq!(
        first_line(saying(&directory, b"{\"do\":\"status\"}\n"))["ok"],
        true
    );
    works(&mut scene, "after");
    assert!(descriptors(&scene) <= before + 1);
    scene.finish();
}

#[test]
fn a_tap_that_never_reads_loses_frames_and_learns_how_many() {
    let mut scene = Scene::open(&[], &[]);
    let directory = scene.stage.card().dir;
    let mut tap = BufReader::new(saying(&directory, b"{\"do\":\"tap\"}\n"));
    let mut line = String::new();
    tap.read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"line\":\"head\""), "{line}");
    // Far more than socket and buffer hold.
    let text = "y".repeat(8_000);
    let calls = 400;
    for _ in 0..calls {
        let said = json!({"text": text});
        assert_eq!(scene.call("echo", &said), said);
    }
    let (mut seen, mut lost, mut before) = (0, 0, None);
    let mut last = None;
    // The tap starts to read. The count of lost frames comes after the frames before the gap, and then the frames go on.
    loop {
        line.clear();
        assert!(tap.read_line(&mut line).unwrap() > 0, "it is not sent away");
        let told: Value = serde_json::from_str(&line).unwrap();
        match told["line"].as_str().unwrap() {
            "frame" => {
                let n = told["n"].as_u64().unwrap();
                let first = *before.get_or_insert(n - 1);
                assert_eq!(n, first + seen + lost + 1, "all that is missing is told");
                seen += 1;
                if told["id"].as_str() == last.as_deref() && told["kind"] == "response" {
                    break;
                }
            }
            "lost" => {
                lost += told["count"].as_u64().unwrap();
                let id = scene.ask_call("echo", &json!({}));
                last = Some(id.to_string());
                scene.client.wire.answer(id).unwrap();
            }
            other => panic!("{other}"),
        }
    }
    assert!(seen > 10 && seen + lost > 800, "{seen} {lost}");
    scene.finish();
}

#[test]
fn taps_do_not_use_up_the_connections_of_commands() {
    let mut scene = Scene::open(&[], &[]);
    let directory = scene.stage.card().dir;
    let tap = || saying(&directory, b"{\"do\":\"tap\"}\n");
    let mut taps = Vec::new();
    for _ in 0..4 {
        let stream = tap();
        assert_eq!(first_line(stream.try_clone().unwrap())["line"], "head");
        taps.push(stream);
    }
    let refused = first_line(tap());
    assert_eq!(refused["error"], "4 taps are open already");
    // A tap that leaves frees its place. So does one that sends a byte, because it is disconnected.
    drop(taps.pop());
    works(&mut scene, "meanwhile");
    assert_eq!(first_line(tap())["line"], "head");
    (&taps[0]).write_all(b"x").unwrap();
    works(&mut scene, "meanwhile");
    assert_eq!(first_line(tap())["line"], "head");
    let stopped = scene.mainstay(&["stop", "unruly"]);
    assert!(stopped.status.success(), "{stopped:?}");
    scene.client.wait();
}

#[test]
fn the_control_socket_is_in_a_private_directory() {
    let scene = Scene::open(&[], &[]);
    let directory = scene.stage.card().dir;
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    scene.finish();
}
