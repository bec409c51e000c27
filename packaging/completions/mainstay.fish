# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_mainstay_global_optspecs
    string join \n color= h/help
end

function __fish_mainstay_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_mainstay_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_mainstay_using_subcommand
    set -l cmd (__fish_mainstay_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c mainstay -n "__fish_mainstay_needs_command" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_needs_command" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "run" -d 'Run a server for a client: the server and everything it starts end with the client'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "adopt" -d 'Send the servers in your clients\' configs through mainstay, after it has shown the change'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "release" -d 'Give the servers in your clients\' configs their own commands back'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "learn" -d 'Open each adopted server once and remember its tools, so that the first session has them at once'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "serve" -d 'Offer stdio servers over HTTP, with sessions that end and servers that restart after a crash'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "ps" -d 'Show the servers that run under mainstay'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "events" -d 'Show what happened: starts, exits and restarts, with their reasons'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "lease" -d 'Open, renew, close and list leases: named scopes that own servers'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "watch" -d 'Show servers that start and end, with their exit status, whether or not mainstay started them'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "reap" -d 'Find MCP servers whose client is gone, and end them with --yes'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "metrics" -d 'Print figures of all servers for Prometheus: memory, restarts, requests and their durations'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "trace-signals" -d 'Show which process sends which signal to which process (needs root)'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "doctor" -d 'Check this machine: containment, paths, config, leftovers'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "cache" -d 'List or clear the cache of handshakes and lists that makes starts fast'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "sessions" -d 'List HTTP sessions that are not closed yet, and close them'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "demo" -d 'Show what mainstay does, with demo servers of its own'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "stop" -d 'End servers and all their processes'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "restart" -d 'Restart servers without disconnecting their clients'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "tap" -d 'Show the messages between a running server and its client, as they pass'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "why" -d 'Explain why a server ended, how certain that is, and what followed'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "logs" -d 'Show what a server writes to stderr, now and before'
complete -c mainstay -n "__fish_mainstay_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l name -d 'Name of the server in `ps`, `stop`, events and the config file [default: taken from the command]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l tier -d 'How the server\'s process tree is contained: subreaper, cgroup, scope or pidns [default: the strongest possible]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l require-tier -d 'Do not start the server unless its process tree is contained at least this strongly' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l retry -d 'Which requests are sent again if the server dies before it answers: never (none), safe (requests that only read) or annotated (also calls of tools that are marked read-only or idempotent) [default: safe]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l watch -d 'Restart the server between two requests when this file or directory changes; may be given several times' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l lease -d 'Start the server in this lease: it ends with the lease [default: the variable `MAINSTAY_LEASE`]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l record -d 'Append every message of the session to this file, secrets hidden (see `mainstay tap --from`)' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l url -d 'The URL of a streamable-HTTP server, instead of a command; its sessions are always closed at the end' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l header -d 'A header for --url, like `X-Team: blue`; may be given several times. It is never logged and is hidden in the process list, but --header-env is safer for a secret' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l header-env -d 'A header for --url whose value is in a variable: `Authorization=MY_TOKEN`; may be given several times' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l grace-eof -d 'Time a server has to end by itself after its stdin was closed [default: 2s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l grace-term -d 'Time the tree has to end after SIGTERM, before it is killed [default: 2s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l kill-confirm -d 'Time the kill itself may take before the leftovers are named in an event [default: 5s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l opening -d 'After this time without any output, a server\'s opening request is answered with an explanation; the server is left running [default: 55s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l stderr-tail-lines -d 'Lines of the server\'s stderr kept for the exit event [default: 64]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l stderr-tail-bytes -d 'Bytes of the server\'s stderr kept for the exit event [default: 8KiB]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l restart-budget -d 'Deaths within --restart-window after which a server is given up; 0 never starts one again [default: 5]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l restart-window -d 'Time over which --restart-budget counts deaths [default: 1m]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l restart-probe -d 'How often a server that was given up is tried once more; 0 never [default: 1m]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l drain -d 'Time a server that is to be restarted (restart, --watch, --memory-max) has to answer what is in flight [default: 10s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l instant-opening -d 'After this time without an answer, the opening and the lists are answered from the cache of an earlier session; 0 never [default: 300ms]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l hibernate -d 'Stop a server that has been idle for this time; the next request starts it again; 0 never [default: 0]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l probe-idle -d 'How often an idle server is asked whether it is there; 0 never [default: 30s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l probe-wait -d 'Time a server has to answer such a question before it counts as lost [default: 10s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l probe-lost -d 'Questions in a row an idle server must leave unanswered, without any output or use of the processor, before it is restarted [default: 3]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l call-deadline -d 'Answer a request with an error after this time and cancel it at the server; 0 never [default: 0]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l memory-max -d 'Memory of the whole tree above which the server is restarted between two requests; 0 no limit [default: 0]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l watch-quiet -d 'How long the files under --watch must be left alone before the server is restarted [default: 300ms]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l held-messages -d 'Messages of the client that are held while a server starts behind an instant opening [default: 1024]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l held-bytes -d 'Bytes of such messages [default: 8MiB]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l record-bytes -d 'Size at which the file under --record is ended; the server goes on [default: 64MiB]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l log-size -d 'Size of the server\'s log for `mainstay logs`; the oldest lines go first; 0 writes no log, less than 256KiB counts as 256KiB [default: 4MiB]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l linger -d 'If the client kills mainstay but stays alive, keep the server this long so that the client can reconnect; without this option 60s for Claude Code, 0 for Copilot, Zed and Crush, and the default for others [default: 5s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l lazy -d 'Do not start the server before it is needed; until then, answer from what an earlier session has shown'
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l advertise-list-changed -d 'After a restart, notify the client of changed lists even if the server has not declared that it does so'
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l no-cache -d 'Do not remember the server\'s handshake and lists, and do not use remembered ones'
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -l record-secrets -d 'Do not hide secrets in the file of --record'
complete -c mainstay -n "__fish_mainstay_using_subcommand run" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -l server -d 'Only this server; may be given several times' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -l project -d 'Also the config files in this project\'s directory, which other people may share' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -l thrifty -d 'Start servers when they are needed and stop them after this idle time (10m if no time is given), except browsers, REPLs and debuggers. Servers that were adopted before are changed, too' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -l remote -d 'Servers behind a URL, where the client leaves HTTP sessions open: safe (those with credentials, or on this machine), all, or none' -r -f -a "safe\t'Those with credentials, or on this machine'
all\t'Also those for which the client might have to log in'
none\t'None'"
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -l program -d 'Let configs name this program, instead of a copy in your bin directory' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -l print -d 'Show what to write into the config of this client by hand' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -s y -l yes -d 'Change the files without asking'
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -l dry-run -d 'Show what would change, and change nothing'
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -l update -d 'Also give servers that were adopted before the present path, and the flags of --thrifty or none; flags that you added stay'
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -l json -d 'As JSON; it asks nothing'
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mainstay -n "__fish_mainstay_using_subcommand release" -l server -d 'Only this server; may be given several times' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand release" -l project -d 'The project whose files are looked at, too [default: the current directory]' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand release" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand release" -l all -d 'Every client on this machine, and every project that adopt has changed'
complete -c mainstay -n "__fish_mainstay_using_subcommand release" -s y -l yes -d 'Change the files without asking'
complete -c mainstay -n "__fish_mainstay_using_subcommand release" -l dry-run -d 'Show what would change, and change nothing'
complete -c mainstay -n "__fish_mainstay_using_subcommand release" -l json -d 'As JSON; it asks nothing'
complete -c mainstay -n "__fish_mainstay_using_subcommand release" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand learn" -l project -d 'Also servers in the config files of this project' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand learn" -l timeout -d 'How long one server may take to open and to list its tools [default: 1m]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand learn" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand learn" -l json -d 'As JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand learn" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l listen -d 'The address to listen on; other machines can connect only with --token-file. A socket that systemd passes is used instead [default: 127.0.0.1:8808]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l token-file -d 'Accept only requests with the token in this file (Authorization: Bearer …)' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l allow-host -d 'A host name that clients may use, beside localhost and its addresses; may be given several times' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l allow-origin -d 'A web site whose pages may send requests, as `https://example.com`; may be given several times' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l allow-user -d 'A user of this machine who may connect without a token, beside you and root: an id, a name in /etc/passwd, or `any` for all users; may be given several times' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l upstream -d 'Pass requests on to this HTTP server instead of starting one; its sessions get --session-ttl and --session-cap and are closed at their end' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l session-ttl -d 'A session that was not used for this time is ended [default: 30m]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l session-cap -d 'Sessions that may be open at a time; the one unused for longest makes room [default: 10000]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l requests-max -d 'Requests that one server may have in flight; more are refused with status 429 [default: 1024]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l streams-max -d 'Streams that one session may have open; more are refused with status 429 [default: 64]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l connections-max -d 'Connections at a time; more are refused with status 503 [default: 10000]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l body-max -d 'The largest body of a request; a larger one is refused with status 413 [default: 4MiB]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l header-max -d 'All headers of a request together; more are refused with status 431 [default: 64KiB]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l header-wait -d 'Time the headers of a request may take; also the time a connection may be without one [default: 30s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l body-wait -d 'Time the body of a request may take; then status 408 [default: 30s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l sse-keep-alive -d 'How often a silent stream gets a comment, which also shows whether the client is still connected; an answer that takes longer becomes a stream [default: 15s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l dead-peer -d 'Time a client\'s machine may take to acknowledge what it was sent before it counts as gone [default: 30s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l resume-events -d 'Events of one session that are kept for a client that comes back with Last-Event-ID [default: 256]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l resume-bytes -d 'Bytes of such events [default: 1MiB]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l drain-delay -d 'Time that requests are still taken after SIGTERM, while /readyz tells balancers to send them elsewhere; 0s by default on a loopback address [default: 5s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l stop-wait -d 'Time that requests in flight have to be answered when serve is told to stop [default: 5s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l name -d 'Name of the server in `ps`, `stop`, events and the config file [default: taken from the command]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l tier -d 'How the server\'s process tree is contained: subreaper, cgroup, scope or pidns [default: the strongest possible]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l require-tier -d 'Do not start the server unless its process tree is contained at least this strongly' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l retry -d 'Which requests are sent again if the server dies before it answers: never (none), safe (requests that only read) or annotated (also calls of tools that are marked read-only or idempotent) [default: safe]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l watch -d 'Restart the server between two requests when this file or directory changes; may be given several times' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l lease -d 'Start the server in this lease: it ends with the lease [default: the variable `MAINSTAY_LEASE`]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l record -d 'Append every message of the session to this file, secrets hidden (see `mainstay tap --from`)' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l url -d 'The URL of a streamable-HTTP server, instead of a command; its sessions are always closed at the end' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l header -d 'A header for --url, like `X-Team: blue`; may be given several times. It is never logged and is hidden in the process list, but --header-env is safer for a secret' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l header-env -d 'A header for --url whose value is in a variable: `Authorization=MY_TOKEN`; may be given several times' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l grace-eof -d 'Time a server has to end by itself after its stdin was closed [default: 2s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l grace-term -d 'Time the tree has to end after SIGTERM, before it is killed [default: 2s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l kill-confirm -d 'Time the kill itself may take before the leftovers are named in an event [default: 5s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l opening -d 'After this time without any output, a server\'s opening request is answered with an explanation; the server is left running [default: 55s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l stderr-tail-lines -d 'Lines of the server\'s stderr kept for the exit event [default: 64]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l stderr-tail-bytes -d 'Bytes of the server\'s stderr kept for the exit event [default: 8KiB]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l restart-budget -d 'Deaths within --restart-window after which a server is given up; 0 never starts one again [default: 5]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l restart-window -d 'Time over which --restart-budget counts deaths [default: 1m]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l restart-probe -d 'How often a server that was given up is tried once more; 0 never [default: 1m]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l drain -d 'Time a server that is to be restarted (restart, --watch, --memory-max) has to answer what is in flight [default: 10s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l instant-opening -d 'After this time without an answer, the opening and the lists are answered from the cache of an earlier session; 0 never [default: 300ms]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l hibernate -d 'Stop a server that has been idle for this time; the next request starts it again; 0 never [default: 0]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l probe-idle -d 'How often an idle server is asked whether it is there; 0 never [default: 30s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l probe-wait -d 'Time a server has to answer such a question before it counts as lost [default: 10s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l probe-lost -d 'Questions in a row an idle server must leave unanswered, without any output or use of the processor, before it is restarted [default: 3]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l call-deadline -d 'Answer a request with an error after this time and cancel it at the server; 0 never [default: 0]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l memory-max -d 'Memory of the whole tree above which the server is restarted between two requests; 0 no limit [default: 0]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l watch-quiet -d 'How long the files under --watch must be left alone before the server is restarted [default: 300ms]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l held-messages -d 'Messages of the client that are held while a server starts behind an instant opening [default: 1024]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l held-bytes -d 'Bytes of such messages [default: 8MiB]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l record-bytes -d 'Size at which the file under --record is ended; the server goes on [default: 64MiB]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l log-size -d 'Size of the server\'s log for `mainstay logs`; the oldest lines go first; 0 writes no log, less than 256KiB counts as 256KiB [default: 4MiB]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l linger -d 'If the client kills mainstay but stays alive, keep the server this long so that the client can reconnect; without this option 60s for Claude Code, 0 for Copilot, Zed and Crush, and the default for others [default: 5s]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l share -d 'Let all sessions of clients up to protocol 2025-11-25 share one server: only for a server that keeps no state per client. It cannot send requests to its clients (sampling, elicitation, roots)'
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l json -d 'Print the addresses as JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l lazy -d 'Do not start the server before it is needed; until then, answer from what an earlier session has shown'
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l advertise-list-changed -d 'After a restart, notify the client of changed lists even if the server has not declared that it does so'
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l no-cache -d 'Do not remember the server\'s handshake and lists, and do not use remembered ones'
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -l record-secrets -d 'Do not hide secrets in the file of --record'
complete -c mainstay -n "__fish_mainstay_using_subcommand serve" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand ps" -l lease -d 'Only the servers of this lease' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand ps" -l sort -d 'What comes first: the most `memory`, the longest `uptime`, or by `name` of the server or `client`' -r -f -a "memory\t''
uptime\t''
name\t''
client\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand ps" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand ps" -s t -l tree -d 'Show the processes of each server, and why no stronger tier is used'
complete -c mainstay -n "__fish_mainstay_using_subcommand ps" -l all -d 'Also servers that were not started through mainstay; a terminal shows them without this option'
complete -c mainstay -n "__fish_mainstay_using_subcommand ps" -l wide -d 'Show all columns and cut nothing'
complete -c mainstay -n "__fish_mainstay_using_subcommand ps" -l watch -d 'Redraw every second, until q or Ctrl-C; needs a terminal'
complete -c mainstay -n "__fish_mainstay_using_subcommand ps" -l json -d 'Print JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand ps" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -l server -d 'Only events of this server' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -l id -d 'Only events of the link with this id (its first digits are enough)' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -l since -d 'Only events since then: `10min`, `1d`, `yesterday`, `14:00`, `2026-11-17`' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -s n -l last -d 'Only the last NUMBER events' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -l frames -d 'With --timeline: also the messages in this file, written by `tap --save`; may be given several times' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -s f -l follow -d 'Continue with new events as they are written'
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -l timeline -d 'Show events and messages in one order of time: the messages of `run --record`, or the last ones before each end'
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -l utc -d 'Show times in UTC'
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -s v -l verbose -d 'Also show milliseconds, ends of pipes and facts about this machine'
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -l json -d 'Print one JSON object per event'
complete -c mainstay -n "__fish_mainstay_using_subcommand events" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and not __fish_seen_subcommand_from open renew close list help" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and not __fish_seen_subcommand_from open renew close list help" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and not __fish_seen_subcommand_from open renew close list help" -f -a "open" -d 'Open a lease that ends with a time, with an owner process, or with the first of both'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and not __fish_seen_subcommand_from open renew close list help" -f -a "renew" -d 'Start the time of an open lease again'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and not __fish_seen_subcommand_from open renew close list help" -f -a "close" -d 'End every server of a lease, wait until nothing is left, and say what was ended'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and not __fish_seen_subcommand_from open renew close list help" -f -a "list" -d 'Show all leases'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and not __fish_seen_subcommand_from open renew close list help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from open" -l ttl -d 'How long the lease lasts without renewal; time in which the machine sleeps does not count [default: 10m without --owner]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from open" -l owner -d 'The process with which the lease ends' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from open" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from open" -l json -d 'Print JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from open" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from renew" -l ttl -d 'How long the lease lasts from now on [default: as long as before]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from renew" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from renew" -l json -d 'Print JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from renew" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from close" -l wait -d 'Wait at most this long [default: as long as the grace times of the servers allow]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from close" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from close" -l json -d 'Print JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from close" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from list" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from help" -f -a "open" -d 'Open a lease that ends with a time, with an owner process, or with the first of both'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from help" -f -a "renew" -d 'Start the time of an open lease again'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from help" -f -a "close" -d 'End every server of a lease, wait until nothing is left, and say what was ended'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from help" -f -a "list" -d 'Show all leases'
complete -c mainstay -n "__fish_mainstay_using_subcommand lease; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mainstay -n "__fish_mainstay_using_subcommand watch" -l client -d 'All processes of this client: claude, codex, gemini, … or the name of a program' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand watch" -l for -d 'End after this time, as in `30s`, `10m`' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand watch" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand watch" -l all -d 'All processes of yours that talk to one of their parents over stdin and stdout'
complete -c mainstay -n "__fish_mainstay_using_subcommand watch" -l once -d 'Show a table of the servers that run now, and exit'
complete -c mainstay -n "__fish_mainstay_using_subcommand watch" -l no-connector -d 'Do not let the kernel report new processes; list all processes every second instead'
complete -c mainstay -n "__fish_mainstay_using_subcommand watch" -l stats -d 'At the end, print on stderr how much processor time `watch` has used'
complete -c mainstay -n "__fish_mainstay_using_subcommand watch" -l json -d 'Print one JSON object per line'
complete -c mainstay -n "__fish_mainstay_using_subcommand watch" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l max -d 'End at most so many servers' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l min-age -d 'A younger server is no orphan yet' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l yes -d 'End the orphans'
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l stale -d 'With --yes: also end clients whose terminal is gone and that are idle, with their servers'
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l all -d 'Also list processes without a client that show no sign of MCP'
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l install -d 'Look every 30 minutes: by a systemd user timer, else by cron'
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l act -d 'With --install: end orphans instead of only reporting them'
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l uninstall -d 'Remove what --install wrote'
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l hook -d 'With --install or --uninstall: a `SessionEnd` hook in Claude Code\'s settings.json instead of a timer'
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l dry-run -d 'With --install or --uninstall: show what would be written or removed, and change nothing'
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -l json -d 'As JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand reap" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand metrics" -l output -d 'Write into this file instead, so that a reader never sees half of it' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand metrics" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand metrics" -l json -d 'Print JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand metrics" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand trace-signals" -l to -d 'Only signals to this process: a pid, a server\'s name, a link\'s id or a process\'s short name' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand trace-signals" -l signal -d 'Only these signals, by name or number, separated by commas' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand trace-signals" -l for -d 'End after this time, as in `30s`, `10m`' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand trace-signals" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand trace-signals" -l all -d 'Also signals between processes that are no MCP servers'
complete -c mainstay -n "__fish_mainstay_using_subcommand trace-signals" -l json -d 'Print one JSON object per signal'
complete -c mainstay -n "__fish_mainstay_using_subcommand trace-signals" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand doctor" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand doctor" -s v -l verbose -d 'Show every check with its details, and where all files are'
complete -c mainstay -n "__fish_mainstay_using_subcommand doctor" -l json -d 'Print JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and not __fish_seen_subcommand_from list clear help" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and not __fish_seen_subcommand_from list clear help" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and not __fish_seen_subcommand_from list clear help" -f -a "list" -d 'List what is in the cache'
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and not __fish_seen_subcommand_from list clear help" -f -a "clear" -d 'Remove servers from the cache; without a name, all of them'
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and not __fish_seen_subcommand_from list clear help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and __fish_seen_subcommand_from list" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and __fish_seen_subcommand_from list" -l json -d 'As JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and __fish_seen_subcommand_from clear" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and __fish_seen_subcommand_from clear" -l json -d 'As JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and __fish_seen_subcommand_from clear" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and __fish_seen_subcommand_from help" -f -a "list" -d 'List what is in the cache'
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and __fish_seen_subcommand_from help" -f -a "clear" -d 'Remove servers from the cache; without a name, all of them'
complete -c mainstay -n "__fish_mainstay_using_subcommand cache; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and not __fish_seen_subcommand_from close help" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and not __fish_seen_subcommand_from close help" -l json -d 'As JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and not __fish_seen_subcommand_from close help" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and not __fish_seen_subcommand_from close help" -f -a "close" -d 'Close each session whose mainstay process is dead'
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and not __fish_seen_subcommand_from close help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and __fish_seen_subcommand_from close" -l header -d 'A header that was given on a command line, so that mainstay does not know its value; can be repeated' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and __fish_seen_subcommand_from close" -l url -d 'The server that the headers and the variables of this shell are for; with the secret part of its URL, if it has one' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and __fish_seen_subcommand_from close" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and __fish_seen_subcommand_from close" -l wait -d 'Try again until every session is closed'
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and __fish_seen_subcommand_from close" -l json -d 'As JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and __fish_seen_subcommand_from close" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and __fish_seen_subcommand_from help" -f -a "close" -d 'Close each session whose mainstay process is dead'
complete -c mainstay -n "__fish_mainstay_using_subcommand sessions; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mainstay -n "__fish_mainstay_using_subcommand demo" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand demo" -l json -d 'Print one JSON object per scene'
complete -c mainstay -n "__fish_mainstay_using_subcommand demo" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand stop" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand stop" -l all -d 'All servers of this name; without a name, all servers that run under mainstay'
complete -c mainstay -n "__fish_mainstay_using_subcommand stop" -l json -d 'Print JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand stop" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand restart" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand restart" -l all -d 'All servers of this name; without a name, all servers that run under mainstay'
complete -c mainstay -n "__fish_mainstay_using_subcommand restart" -l json -d 'Print JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand restart" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand tap" -l from -d 'Show a file that `--save` or `run --record` wrote' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand tap" -l method -d 'Only methods that match (`*` any characters, `?` one), with their answers; may be given several times' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand tap" -l direction -d 'Only messages that this side wrote: client, server or mainstay' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand tap" -l save -d 'Also append the messages to this file, as JSON' -r -F
complete -c mainstay -n "__fish_mainstay_using_subcommand tap" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand tap" -l raw -d 'Print only the messages themselves, one per line'
complete -c mainstay -n "__fish_mainstay_using_subcommand tap" -l json -d 'Print one JSON object per message'
complete -c mainstay -n "__fish_mainstay_using_subcommand tap" -s v -l verbose -d 'Also show milliseconds, ids and sizes'
complete -c mainstay -n "__fish_mainstay_using_subcommand tap" -l no-redact -d 'Do not hide values that look like a secret'
complete -c mainstay -n "__fish_mainstay_using_subcommand tap" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand why" -l last -d 'List the last NUMBER ends, the newest first' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand why" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand why" -l full -d 'Also show the events that the verdict rests on, the last messages, and all suspects'
complete -c mainstay -n "__fish_mainstay_using_subcommand why" -l utc -d 'Show times in UTC'
complete -c mainstay -n "__fish_mainstay_using_subcommand why" -l json -d 'Print JSON'
complete -c mainstay -n "__fish_mainstay_using_subcommand why" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand logs" -s n -l last -d 'Only the last NUMBER lines [default: 50, with --since all]' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand logs" -l since -d 'Only lines since then: `10min`, `1d`, `yesterday`, `14:00`, `2026-11-17`' -r
complete -c mainstay -n "__fish_mainstay_using_subcommand logs" -l color -d 'When to use colours: auto, always or never; `NO_COLOR`, `CLICOLOR_FORCE` and `TERM=dumb` count with auto' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mainstay -n "__fish_mainstay_using_subcommand logs" -s f -l follow -d 'Continue with new lines until the server\'s client has ended'
complete -c mainstay -n "__fish_mainstay_using_subcommand logs" -l utc -d 'Show times in UTC'
complete -c mainstay -n "__fish_mainstay_using_subcommand logs" -l json -d 'Print one JSON object per line'
complete -c mainstay -n "__fish_mainstay_using_subcommand logs" -s h -l help -d 'Print help'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "run" -d 'Run a server for a client: the server and everything it starts end with the client'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "adopt" -d 'Send the servers in your clients\' configs through mainstay, after it has shown the change'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "release" -d 'Give the servers in your clients\' configs their own commands back'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "learn" -d 'Open each adopted server once and remember its tools, so that the first session has them at once'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "serve" -d 'Offer stdio servers over HTTP, with sessions that end and servers that restart after a crash'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "ps" -d 'Show the servers that run under mainstay'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "events" -d 'Show what happened: starts, exits and restarts, with their reasons'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "lease" -d 'Open, renew, close and list leases: named scopes that own servers'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "watch" -d 'Show servers that start and end, with their exit status, whether or not mainstay started them'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "reap" -d 'Find MCP servers whose client is gone, and end them with --yes'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "metrics" -d 'Print figures of all servers for Prometheus: memory, restarts, requests and their durations'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "trace-signals" -d 'Show which process sends which signal to which process (needs root)'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "doctor" -d 'Check this machine: containment, paths, config, leftovers'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "cache" -d 'List or clear the cache of handshakes and lists that makes starts fast'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "sessions" -d 'List HTTP sessions that are not closed yet, and close them'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "demo" -d 'Show what mainstay does, with demo servers of its own'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "stop" -d 'End servers and all their processes'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "restart" -d 'Restart servers without disconnecting their clients'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "tap" -d 'Show the messages between a running server and its client, as they pass'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "why" -d 'Explain why a server ended, how certain that is, and what followed'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "logs" -d 'Show what a server writes to stderr, now and before'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and not __fish_seen_subcommand_from run adopt release learn serve ps events lease watch reap metrics trace-signals doctor cache sessions demo stop restart tap why logs help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and __fish_seen_subcommand_from lease" -f -a "open" -d 'Open a lease that ends with a time, with an owner process, or with the first of both'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and __fish_seen_subcommand_from lease" -f -a "renew" -d 'Start the time of an open lease again'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and __fish_seen_subcommand_from lease" -f -a "close" -d 'End every server of a lease, wait until nothing is left, and say what was ended'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and __fish_seen_subcommand_from lease" -f -a "list" -d 'Show all leases'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and __fish_seen_subcommand_from cache" -f -a "list" -d 'List what is in the cache'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and __fish_seen_subcommand_from cache" -f -a "clear" -d 'Remove servers from the cache; without a name, all of them'
complete -c mainstay -n "__fish_mainstay_using_subcommand help; and __fish_seen_subcommand_from sessions" -f -a "close" -d 'Close each session whose mainstay process is dead'

# The names of clients. clap offers no words for arguments in fish.
complete -c mainstay -n "__fish_mainstay_using_subcommand adopt" -f -a "amp claude desktop cline codex cn copilot crush cursor gemini goose hermes junie kiro lmstudio opencode qwen roo code warp codeium zed"
complete -c mainstay -n "__fish_mainstay_using_subcommand release" -f -a "amp claude desktop cline codex cn copilot crush cursor gemini goose hermes junie kiro lmstudio opencode qwen roo code warp codeium zed"

# The names and ids of servers, as mainstay itself prints them.
complete -c mainstay -n "__fish_mainstay_using_subcommand stop" -f -k -a "(mainstay complete running 2>/dev/null)"
complete -c mainstay -n "__fish_mainstay_using_subcommand restart" -f -k -a "(mainstay complete running 2>/dev/null)"
complete -c mainstay -n "__fish_mainstay_using_subcommand tap" -f -k -a "(mainstay complete running 2>/dev/null)"
complete -c mainstay -n "__fish_mainstay_using_subcommand why" -f -k -a "(mainstay complete known 2>/dev/null)"
complete -c mainstay -n "__fish_mainstay_using_subcommand logs" -f -k -a "(mainstay complete known 2>/dev/null)"
