//! The supervisor's reloads, one after the other: a new one is compiled when the one before is
//! decided, so that workers and sockets are where the configuration in force says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Supervisor, Waiting};
use crate::control::access_log::Sink;
use crate::control::discovery::{self, Answered};
use crate::control::helper::{Compiled, HostPort, Wanted};
use crate::control::outcome::{Caller, Outcome, Reason, Refusal, late, unacknowledged};
use crate::control::process::unix_time_s;
use crate::control::{certificates, cores};
use crate::limits::{ACKNOWLEDGE_MS, COMPILE_MS, LAST_RELOAD_TEXT_BYTES_MAX};
use crate::observe::render::{LastReload, ProcessView, ReloadResult};
use crate::snapshot::Snapshot;
use crate::worker::Opened;

/// Where reloads are on their way.
#[derive(Debug, Default)]
pub(super) struct Reloads {
    compiling: Option<Compiling>,
    applying: Option<Applying>,
    /// One more is asked for, and by whom: what is being compiled may be older than the file.
    queued: Option<Vec<Caller>>,
    /// Files of certificates have changed since.
    certificates: bool,
    /// Other endpoints have been found since.
    endpoints: bool,
}

#[derive(Debug)]
struct Compiling {
    since: Instant,
    until: Instant,
    /// Given up: whatever comes of it is dropped, and until then nothing else can be compiled.
    late: bool,
    /// Only the endpoints change: nobody asked for it, and it is no reload.
    endpoints: bool,
    callers: Vec<Caller>,
}

#[derive(Debug)]
struct Applying {
    waiting: Waiting,
    callers: Vec<Caller>,
    warnings: String,
    /// What the access log goes on to once no worker writes lines of the configuration before.
    log: Option<Sink>,
}

impl Reloads {
    /// Whether none is on its way.
    pub(super) fn idle(&self) -> bool {
        self.compiling.is_none() && self.applying.is_none()
    }

    /// How many workers have not acknowledged the one that is being applied.
    #[cfg(test)]
    pub(super) fn awaited(&self) -> Option<usize> {
        self.applying.as_ref().map(|applying| applying.waiting.workers.len())
    }

    /// When the compiler's answer, or the acknowledgements of the workers, are due.
    pub(super) fn due(&self) -> Option<Instant> {
        let compiling = self.compiling.as_ref().filter(|compiling| !compiling.late);
        let applying = self.applying.as_ref().map(|applying| applying.waiting.until);
        compiling.map(|compiling| compiling.until).or(applying)
    }
}

impl Supervisor {
    /// Takes the wish for a reload, of HUP or of a caller that is answered when it is decided.
    pub(super) fn on_reload(&mut self, caller: Option<Caller>, now: Instant) {
        if self.draining.is_some() {
            tracing::warn!("no reload while draining");
            return tell(caller, &Outcome::Draining);
        }
        if self.reloads.compiling.as_ref().is_some_and(|compiling| compiling.late) {
            return self.refuse(late(), caller.into_iter().collect());
        }
        let queued = self.reloads.queued.get_or_insert_default();
        // Those that have gone away would add up.
        queued.retain(|caller| !caller.is_closed());
        queued.extend(caller);
        self.next_reload(now);
    }

    /// Has the configuration in force compiled with the certificates as they stand now: its own
    /// files may be half edited.
    pub(super) fn on_certificates_changed(&mut self, now: Instant) {
        if self.draining.is_none() {
            self.reloads.certificates = true;
            self.next_reload(now);
        }
    }

    /// Takes what a look for endpoints came to. Others than before take force as soon as no reload is on
    /// its way; one that is compiled until then has them too.
    pub(super) fn on_discovered(&mut self, answered: Answered, now: Instant) {
        let warning = self.discovery.answer(answered, now, unix_time_s());
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        if self.discovery.take_changed() && self.draining.is_none() {
            self.reloads.endpoints = true;
            self.next_reload(now);
        }
        let discovery = self.discovery.views();
        self.publish(|view| view.discovery = discovery);
    }

    /// Begins the reload that is asked for, unless another one is on its way.
    pub(super) fn next_reload(&mut self, now: Instant) {
        if !self.reloads.idle() || self.fleet.is_empty() {
            return;
        }
        let certificates = std::mem::take(&mut self.reloads.certificates);
        let endpoints = std::mem::take(&mut self.reloads.endpoints);
        let sources = || self.in_force.borrow().sources.clone();
        let (wanted, callers) = match self.reloads.queued.take() {
            // It reads the certificates too.
            Some(callers) => (Wanted::Source, callers),
            None if certificates => {
                tracing::info!("certificates have changed: reading them again");
                (Wanted::Certificates(sources()), Vec::new())
            }
            None if endpoints => (Wanted::Endpoints(sources()), Vec::new()),
            None => return,
        };
        let endpoints = matches!(wanted, Wanted::Endpoints(_));
        let (version, known) = (self.current.version + 1, self.discovery.known());
        if self.helpers.compile(wanted, version, self.current.clone(), known, self.fleet.len()) {
            self.reloads.compiling = Some(Compiling {
                since: now,
                until: now + Duration::from_millis(COMPILE_MS),
                late: false,
                endpoints,
                callers,
            });
        } else {
            let text = "the helper thread is gone; a restart is needed".to_owned();
            self.refuse(Refusal { reason: Reason::NeedsRestart, text }, callers);
        }
    }

    pub(super) fn on_compiled(&mut self, compiled: Result<Compiled, Refusal>, now: Instant) {
        let Some(Compiling { since, late, endpoints, callers, .. }) = self.reloads.compiling.take()
        else {
            return;
        };
        match compiled {
            // Its new sockets are closed again here too.
            _ if late => {
                // Endpoints that it was to bring in come without it.
                self.reloads.endpoints |= !self.discovery.is_empty();
                let s = now.duration_since(since).as_secs();
                tracing::warn!(
                    "a reload that was given up has been read after {s} s: reload again"
                );
            }
            // Its new sockets are closed again; nobody has been told of them.
            Ok(_) if self.draining.is_some() => tell(callers, &Outcome::Draining),
            Ok(compiled) if endpoints => self.apply_endpoints(compiled, now),
            Ok(compiled) => self.apply(compiled, callers, since, now),
            Err(refusal) => {
                // Endpoints that it was to bring in come without it.
                self.reloads.endpoints |= !self.discovery.is_empty();
                self.refuse(refusal, callers);
            }
        }
        self.next_reload(now);
    }

    fn apply(&mut self, compiled: Compiled, callers: Vec<Caller>, since: Instant, now: Instant) {
        let Compiled { taken, warnings, addresses, discovered, bound, mut log } = compiled;
        if !warnings.is_empty() {
            tracing::warn!("the new configuration has warnings:\n{warnings}");
        }
        if self.current.access_log.is_none() {
            // The first lines may come before the last worker has acknowledged.
            self.log_to(log.take());
        }
        self.current = taken.snapshot.clone();
        self.in_force.send_replace(taken);
        let waiting = Waiting { since, ..self.wait(now, ACKNOWLEDGE_MS) };
        self.reloads.applying = Some(Applying { waiting, callers, warnings, log });
        self.discovery.follow(&self.current, now);
        for answered in discovered {
            if let Some(warning) = self.discovery.answer(answered, now, unix_time_s()) {
                tracing::warn!("{warning}");
            }
        }
        // It has those already; what was found meanwhile for others has been noted when it came.
        self.discovery.take_changed();
        self.send_snapshot(addresses, bound.opened, now);
        self.bound.extend(bound.addresses);
        let kept = |id| self.current.listeners.iter().any(|plan| plan.id == id);
        self.bound.retain(|id, _| kept(*id));
        let (version, listeners) = (self.current.version, self.listeners());
        let names = self.current.names.clone();
        let discovery = self.discovery.views();
        let certificates = certificates::view(&self.current);
        self.publish(|view| {
            view.names = names;
            view.certificates = certificates;
            view.discovery = discovery;
            view.config_version = version;
            view.config_applied_at_s = unix_time_s();
            view.listeners = listeners;
        });
    }

    /// Has other endpoints take force: as a reload, but no version of the configuration, and nobody waits
    /// for the workers' word.
    fn apply_endpoints(&mut self, compiled: Compiled, now: Instant) {
        let Compiled { taken, addresses, bound, .. } = compiled;
        let before = std::mem::replace(&mut self.current, taken.snapshot.clone());
        for change in discovery::changes(&before, &self.current) {
            tracing::info!("{change}");
        }
        self.in_force.send_replace(taken);
        self.send_snapshot(addresses, bound.opened, now);
        let names = self.current.names.clone();
        self.publish(|view| view.names = names);
    }

    /// Sends the snapshot in force to every worker, with the addresses of names that it brings in.
    fn send_snapshot(
        &mut self,
        addresses: Vec<(HostPort, Vec<SocketAddr>)>,
        opened: Vec<Vec<Opened>>,
        now: Instant,
    ) {
        self.names.follow(&self.current, now);
        for (name, addresses) in addresses {
            self.names.answer(name, Ok(addresses));
        }
        // Before the snapshot, so that an endpoint that it brings in has its addresses at once.
        self.broadcast_addresses();
        let configured = self.current.runtime.connections_max;
        let descriptors = self.view.borrow().descriptors_max;
        let connections_max = cores::connections_max(configured, descriptors, self.fleet.len());
        self.fleet.change(&self.current, opened, connections_max);
        self.judge_current(now);
    }

    fn refuse(&mut self, refusal: Refusal, callers: Vec<Caller>) {
        let version = self.current.version;
        // Diagnostics have lines of their own.
        let gap = if refusal.reason == Reason::Rejected { "\n" } else { " " };
        let text = &refusal.text;
        tracing::error!("reload refused, configuration {version} stays in force:{gap}{text}");
        self.count(refusal.reason.result(), text);
        tell(callers, &Outcome::Refused { refusal, version });
    }

    pub(super) fn on_applied(&mut self, worker: usize, version: u64, now: Instant) {
        let Some(applying) = &mut self.reloads.applying else { return };
        if version != self.current.version {
            return;
        }
        applying.waiting.workers.remove(&worker);
        if !applying.waiting.workers.is_empty() {
            return;
        }
        let Some(Applying { waiting, callers, warnings, log }) = self.reloads.applying.take()
        else {
            return;
        };
        self.log_to(log);
        if self.current.access_log.is_none()
            && let Some(writer) = &self.access_log
        {
            // Whatever it holds was written by workers that are done with it; one that is stuck is
            // closed by the end.
            let _ = writer.close();
        }
        let ms = now.duration_since(waiting.since).as_secs_f64() * 1000.0;
        let text = format!("configuration {version} is in force on every worker after {ms:.1} ms");
        tracing::info!("{text}");
        self.count(ReloadResult::Applied, &text);
        let ms = (ms * 10.0).round() / 10.0;
        tell(callers, &Outcome::Applied { version, workers: self.fleet.len(), ms, warnings });
        self.next_reload(now);
    }

    /// Gives up on a compiler that has not answered in time: what it reads may hang for ever.
    pub(super) fn on_compiler_due(&mut self, now: Instant) {
        let Some(compiling) = &mut self.reloads.compiling else { return };
        if compiling.late || compiling.until > now {
            return;
        }
        compiling.late = true;
        let mut callers = std::mem::take(&mut compiling.callers);
        callers.extend(self.reloads.queued.take().into_iter().flatten());
        self.refuse(late(), callers);
    }

    /// Gives up on workers that have not acknowledged in time.
    pub(super) fn on_acknowledgements_due(&mut self, now: Instant) {
        let due = |applying: &mut Applying| applying.waiting.until <= now;
        let Some(late) = self.reloads.applying.take_if(due) else { return };
        let version = self.current.version;
        let workers: Vec<_> = late.waiting.workers.into_iter().collect();
        let text = unacknowledged(version, &workers);
        tracing::error!("{text}");
        self.log_to(late.log);
        self.count(ReloadResult::Unacknowledged, &text);
        tell(late.callers, &Outcome::Unacknowledged { version, workers });
        self.next_reload(now);
    }

    /// A drain has begun: nothing that is only asked for will be done.
    pub(super) fn drop_queued_reload(&mut self) {
        tell(self.reloads.queued.take().into_iter().flatten(), &Outcome::Draining);
    }

    /// Name and address of each listener, for the view.
    pub(super) fn listeners(&self) -> Vec<(String, String)> {
        let shown = |snapshot: &Arc<Snapshot>| {
            let address = |id| self.bound.get(id).map(ToString::to_string).unwrap_or_default();
            let listeners = snapshot.listeners.iter();
            listeners.map(|plan| (plan.name.to_string(), address(&plan.id))).collect()
        };
        shown(&self.current)
    }

    /// Has the access log written to another target, if there is one.
    fn log_to(&self, sink: Option<Sink>) {
        if let (Some(sink), Some(writer)) = (sink, &self.access_log)
            && !writer.replace(sink)
        {
            tracing::error!("the access log is stuck: it goes on to where it went");
        }
    }

    fn count(&mut self, result: ReloadResult, text: &str) {
        let message = cut(text, LAST_RELOAD_TEXT_BYTES_MAX).trim_end().to_owned();
        self.publish(|view: &mut ProcessView| {
            view.reloads[result as usize] += 1;
            view.last_reload_success = result == ReloadResult::Applied;
            view.last_reload = Some(LastReload { result, at_s: unix_time_s(), message });
        });
    }
}

/// The longest beginning of at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Tells callers; those that have gone away do not hear it.
fn tell(callers: impl IntoIterator<Item = Caller>, outcome: &Outcome) {
    for caller in callers {
        let _ = caller.send(outcome.clone());
    }
}
