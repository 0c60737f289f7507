//! Hosts in network namespaces, and the link between them taken away: the generator behind it is
//! given up, training goes on, and it comes back when the link does.
//!
//! ```text
//! host a: Redis, trainer, generator `near` ── veth ── host b: generator `far`
//! ```

use std::process::{Command, Output};

use rustix::process::Signal;
use scalerl_journal::FleetState::{Dead, Healthy};

use crate::bench::{scalerl, train};
use crate::run::{Alive, ENDLESS, audit_run, changes, states, until_all_have_ended};
use crate::server::{Kind, Redis};

const NEAR: &str = "10.213.77.1";
const FAR: &str = "10.213.77.2";

/// Two hosts with a link; taken down when dropped.
struct Hosts {
    near: String,
    far: String,
    link: String,
}

fn ip(words: &[&str]) -> std::io::Result<Output> {
    Command::new("ip").args(words).output()
}

impl Hosts {
    /// `None`, with a word about it, where the machine does not allow it.
    fn join() -> Option<Self> {
        let id = std::process::id();
        let hosts =
            Self { near: format!("srl{id}a"), far: format!("srl{id}b"), link: format!("srl{id}") };
        let (near, far) = (hosts.near.as_str(), hosts.far.as_str());
        let (link, other) = (hosts.link.as_str(), format!("{}x", hosts.link));
        let (near_address, far_address) = (format!("{NEAR}/24"), format!("{FAR}/24"));
        let acts: [&[&str]; 9] = [
            &["netns", "add", near],
            &["netns", "add", far],
            &[
                "link", "add", link, "netns", near, "type", "veth", "peer", "name", &other,
                "netns", far,
            ],
            &["-n", near, "address", "add", &near_address, "dev", link],
            &["-n", far, "address", "add", &far_address, "dev", &other],
            &["-n", near, "link", "set", link, "up"],
            &["-n", far, "link", "set", &other, "up"],
            &["-n", near, "link", "set", "lo", "up"],
            &["-n", far, "link", "set", "lo", "up"],
        ];
        for act in acts {
            let reason = match ip(act) {
                Ok(done) if done.status.success() => continue,
                Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            println!(
                "SKIPPED: no network namespaces here: ip {}: {}",
                act.join(" "),
                reason.trim()
            );
            let is_needed = std::env::var_os("SCALERL_REQUIRE_NAMESPACES").is_some();
            assert!(!is_needed, "network namespaces are needed");
            return None;
        }
        Some(hosts)
    }

    fn set_link(&self, state: &str) {
        let done = ip(&["-n", &self.near, "link", "set", &self.link, state]).unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in [&self.near, &self.far] {
            // Not there where joining failed.
            let _ = ip(&["netns", "delete", host]);
        }
    }
}

fn inside(host: &str, command: &Command) -> Command {
    let mut inner = Command::new("ip");
    inner.args(["netns", "exec", host]).arg(command.get_program()).args(command.get_args());
    inner.current_dir(command.get_current_dir().unwrap());
    inner.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    inner
}

#[test]
fn a_generator_that_is_cut_off_is_given_up_and_comes_back() {
    let Some(hosts) = Hosts::join() else { return };
    let words = ["ip", "netns", "exec", hosts.near.as_str()].map(str::to_owned).to_vec();
    let network = Some((words, NEAR.to_owned()));
    let Some(redis) = Redis::of(Kind { network, ..Kind::default() }) else { return };
    let run = "cut-off";
    let set = ["cluster.generators=2", "cluster.name=\"cut-off\"", "cluster.rank_deadline_s=10"];
    let lead = train("scalerl", run, &[&ENDLESS[..], &set].concat());
    let mut lead = inside(&hosts.near, &lead);
    // Generators come by hand, from other hosts, by this address.
    lead.env("RANK", "0")
        .env("WORLD_SIZE", "1")
        .env("MASTER_ADDR", NEAR)
        .env("MASTER_PORT", "29611");
    lead.env("SCALERL_REDIS", redis.url());
    let mut lead = Alive::start(run, lead);
    let generator = |host: &str, name: &str| {
        let token = format!("{run}/session.token");
        let words =
            ["generator", "--name", run, "--as", name, "--device", "cpu", "--token-file", &token];
        let mut command = inside(host, &scalerl(&words));
        command.env("SCALERL_REDIS", redis.url()).env("OMP_NUM_THREADS", "1");
        Alive::start(&format!("{run}-{name}"), command)
    };
    let near = generator(&hosts.near, "near");
    let far = generator(&hosts.far, "far");
    lead.until_healthy(&["near", "far"]);
    lead.go_on(5);
    hosts.set_link("down");
    lead.until("the far one to be given up", || states(run, "far").contains(&Dead));
    lead.go_on(10);
    assert!(!states(run, "near").contains(&Dead), "the near one serves");
    hosts.set_link("up");
    lead.until("the far one to come back", || states(run, "far").last() == Some(&Healthy));
    lead.go_on(10);
    for change in changes(run, "far") {
        println!("far: {:?} -> {}: {}", change.from, change.to, change.reason);
    }
    lead.signal(Signal::TERM);
    let said = lead.end();
    assert_eq!(said.code, Some(0), "{}\n{}", said.out, said.err);
    for one in [near, far] {
        let said = one.end();
        assert!(said.code == Some(0) && said.err.contains("the run is over"), "{said:?}");
    }
    until_all_have_ended(run);
    audit_run(run);
}
