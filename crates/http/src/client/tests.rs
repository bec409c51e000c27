//! guards: A certificate that this machine does not trust is refused, and a redirect never leaves the origin.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A certificate for `localhost` that signs itself, valid for a hundred years; only these tests trust it.
const CERTIFICATE: &[u8] = include_bytes!("certificate/ca.pem");
const KEY: &[u8] = include_bytes!("certificate/key.pem");

fn run<F: Future>(play: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(play)
}

/// Plays a server and a client until the client is done.
async fn beside<A: Future, B: Future>(server: A, client: B) -> B::Output {
    let mut server = Box::pin(server);
    let mut client = Box::pin(client);
    let mut served = false;
    poll_fn(|cx| {
        if !served {
            served = server.as_mut().poll(cx).is_ready();
        }
        client.as_mut().poll(cx)
    })
    .await
}

async fn head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

fn get(url: &str) -> Outgoing {
    Outgoing {
        method: Method::GET,
        target: Target::parse(url).unwrap(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    }
}

#[test]
fn a_connection_rests_and_is_used_again() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://u%3a:p@{}/a?b=c", listener.local_addr().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            for turn in 0..3 {
                let head = head(&mut stream).await;
                assert!(head.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{head}");
                assert!(head.contains("authorization: Basic dTo6cA==\r\n"), "{head}");
                let body = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{turn}");
                stream.write_all(body.as_bytes()).await.unwrap();
            }
        };
        let ask = async {
            let client = Client::new();
            for turn in 0..3 {
                let mut answer = client.send(get(&url)).await.unwrap();
                assert_eq!(answer.whole(10).await.unwrap(), turn.to_string().as_bytes());
            }
        };
        beside(serve, ask).await;
    });
}

#[test]
fn a_connection_that_was_closed_while_it_rested_costs_nothing() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let serve = async {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                head(&mut stream).await;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        };
        let ask = async {
            let client = Client::new();
            for _ in 0..2 {
                let mut answer = client.send(get(&url)).await.unwrap();
                assert_eq!(answer.chunk().await.unwrap(), None);
                // Long enough for the server's task to have closed it.
                tokio::task::yield_now().await;
            }
        };
        beside(serve, ask).await;
    });
}

#[test]
fn what_breaks_is_told_and_whether_the_server_may_have_seen_it() {
    run(async {
        for (answer, stage, words) in [
            ("", Stage::Head, "before its answer was complete"),
            ("SSH-2.0-x\r\n\r\n", Stage::Head, "not HTTP"),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx",
                Stage::Body,
                "",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n12345678901",
                Stage::Body,
                "longer than",
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                head(&mut stream).await;
                stream.write_all(answer.as_bytes()).await.unwrap();
            };
            let ask = async {
                let client = Client::new();
                match client.send(get(&url)).await {
                    Ok(mut answer) => answer.whole(10).await.unwrap_err(),
                    Err(failure) => failure,
                }
            };
            let failure = beside(serve, ask).await;
            assert_eq!(failure.stage, stage, "{failure:?}");
            assert!(failure.why.contains(words), "{failure:?}");
            assert!(!failure.unsent());
        }
    });
}

#[test]
fn a_closed_port_fails_at_once() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        drop(listener);
        let refused = Client::new()
            .send(get(&format!("http://{at}/?secret")))
            .await;
        let refused = refused.err().unwrap();
        assert_eq!(refused.stage, Stage::Connect);
        assert!(refused.unsent());
        assert_eq!(refused.why, format!("{at}: connection refused"));
    });
}

#[test]
fn redirects_stay_within_the_origin() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            for location in ["/mcp/", "http://other.example/"] {
                seen.push(head(&mut stream).await.lines().next().unwrap().to_string());
                let answer = format!(
                    "HTTP/1.1 307 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            assert_eq!(seen, ["GET /mcp HTTP/1.1", "GET /mcp/ HTTP/1.1"]);
        };
        let answer = beside(serve, Client::new().send(get(&format!("http://{at}/mcp")))).await;
        assert_eq!(answer.unwrap().status, StatusCode::TEMPORARY_REDIRECT);
    });
}

/// The other side of TLS.
fn acceptor() -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[test]
fn a_certificate_is_believed_only_if_this_machine_does() {
    run(async {
        let acceptor = acceptor();
        for trusted in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let serve = async {
                let (stream, _) = listener.accept().await.unwrap();
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    head(&mut stream).await;
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    stream.write_all(answer).await.unwrap();
                }
            };
            let client = Client::new();
            if trusted {
                let mut roots = rustls::RootCertStore::empty();
                tls::add(&mut roots, CERTIFICATE);
                assert!(client.tls.set(tls::with(roots)).is_ok());
            } else {
                let no_roots = rustls::RootCertStore::empty();
                assert!(client.tls.set(tls::with(no_roots)).is_ok());
            }
            let url = format!("https://localhost:{port}/");
            let answer = beside(serve, client.send(get(&url))).await;
            if trusted {
                assert_eq!(answer.unwrap().whole(10).await.unwrap(), b"ok");
            } else {
                let failure = answer.err().unwrap();
                assert_eq!(failure.stage, Stage::Tls);
                assert!(failure.why.contains("certificate"), "{failure:?}");
            }
        }
    });
}

#[test]
fn a_proxy_is_told_the_whole_url_or_asked_for_a_way() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let client = || Client {
            proxies: Proxies::read(|name| {
                matches!(name, "HTTP_PROXY" | "HTTPS_PROXY")
                    .then(|| format!("http://me:p%40ss@{at}"))
            }),
            ..Client::default()
        };
        let plain = client();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            for _ in 0..2 {
                let seen = head(&mut stream).await.to_ascii_lowercase();
                assert!(
                    seen.starts_with("get http://far.example:81/mcp?a=1 http/1.1\r\n"),
                    "{seen}"
                );
                assert!(seen.contains("host: far.example:81\r\n"), "{seen}");
                assert!(
                    seen.contains("proxy-authorization: basic bwu6cebzcw==\r\n"),
                    "{seen}"
                );
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(answer).await.unwrap();
            }
        };
        let ask = async {
            for _ in 0..2 {
                let mut answer = plain
                    .send(get("http://u:p@far.example:81/mcp?a=1"))
                    .await
                    .unwrap();
                assert_eq!(
                    answer.whole(10).await.unwrap(),
                    b"ok",
                    "and the connection rests"
                );
            }
        };
        beside(serve, ask).await;
        for (answer, why) in [
            ("HTTP/1.1 407 No\r\n\r\n", "wants a user"),
            ("HTTP/1.0 503 No\r\n\r\n", "refused the way with HTTP 503"),
            ("SSH-2.0-x\r\n\r\n", "does not answer as a proxy does"),
            ("", "closed the connection"),
        ] {
            let serve = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let seen = head(&mut stream).await;
                assert!(
                    seen.starts_with(
                        "CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n"
                    ),
                    "{seen}"
                );
                assert!(
                    seen.contains("Proxy-Authorization: Basic bWU6cEBzcw==\r\n"),
                    "{seen}"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            };
            let failure = beside(serve, client().send(get("https://far.example/")))
                .await
                .err()
                .unwrap();
            assert!(failure.unsent() && failure.why.contains(why), "{failure:?}");
            assert!(!failure.why.contains("ss@"), "{failure:?}");
        }
    });
}

#[test]
fn tls_goes_through_the_way_that_a_proxy_opens() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let acceptor = acceptor();
        let mut roots = rustls::RootCertStore::empty();
        tls::add(&mut roots, CERTIFICATE);
        let client = Client {
            proxies: Proxies::read(|name| (name == "HTTPS_PROXY").then(|| at.to_string())),
            ..Client::default()
        };
        assert!(client.tls.set(tls::with(roots)).is_ok());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            head(&mut stream).await;
            let opened = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n";
            stream.write_all(opened).await.unwrap();
            match acceptor.accept(stream).await {
                Ok(mut stream) => {
                    let seen = head(&mut stream).await;
                    assert!(seen.starts_with("GET /in HTTP/1.1"), "{seen}");
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    stream.write_all(answer).await.unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        };
        // The certificate is for `localhost`, which is never reached through a proxy; so its name is asked for by way of
        // one that is.
        let target = Target::parse("https://localhost:9/in").unwrap();
        let proxy = Target::parse(&format!("http://{at}")).unwrap();
        let asked = async {
            let mut live = client.connect(&target, Some(&proxy)).await.unwrap();
            let sent = request(&get("https://localhost:9/in"), None).unwrap();
            let sent = Box::pin(live.sender.try_send_request(sent));
            live.drive
                .until(sent)
                .await
                .map(|answer| answer.status())
                .ok()
        };
        assert_eq!(beside(serve, asked).await, Some(StatusCode::OK));
    });
}
