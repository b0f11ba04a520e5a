//! A tunnel: after 101 both connections carry bytes that are none of the proxy's business.

use std::time::Instant;

use super::exchange::{Answer, Upload};
use super::filters;
use super::forward::Job;
use super::serve::Next;
use crate::base::buffer::Buf;
use crate::error::ErrorKind;
use crate::http::BodyFraming;
use crate::http1::conn::write_all;
use crate::http1::encode::{Persistence, ResponseEdit, encode_response};
use crate::io::runtime::join;
use crate::io::wait::Timer;
use crate::io::{Shutdown, Stream, Wait};
use crate::observe::WorkerCounters;

/// Passes the 101 on and then everything, both ways, until both sides have ended or nothing has
/// come for the tunnel's idle timeout. Bytes behind either head are the first of the tunnel.
pub(super) async fn run(
    upload: &mut Upload,
    answer: &mut Answer,
    job: &Job<'_>,
) -> Result<Next, ErrorKind> {
    answer.head_at = Some(Instant::now());
    filters::on_response(job.matched, job.context, &job.listener().name, answer);
    let edit = ResponseEdit {
        framing: BodyFraming::None,
        drop_content_length: true,
        persistence: Persistence::Upgrade,
        request_id: None,
        date: None,
        via: job.listener().via,
    };
    let mut to_client = Buf::for_head();
    encode_response(&mut to_client, answer.head.bytes.filled(), &answer.head, &edit);
    to_client.extend(answer.head.rest());
    answer.head.bytes = Buf::empty();
    answer.status = 101;
    let mut to_upstream = Buf::for_head();
    to_upstream.extend(&job.context.request.rest()[upload.in_hand..]);
    upload.in_hand = job.context.request.rest().len();

    // A tunnel has bounds of its own: idleness, and a side that takes nothing.
    if let Some(total) = job.total {
        total.disarm();
    }
    let counters = &job.core.counters;
    counters.tunnels.increment();
    let _open = Open(counters);
    let (client, upstream) = (job.down.stream(), job.stream());
    let up = copy(job, client, upstream, to_upstream, &mut upload.bytes);
    let down = copy(job, upstream, client, to_client, &mut answer.bytes);
    join(up, down).await;
    Ok(Next::Close)
}

/// Copies one direction to its end, which is passed on; a failure ends both directions.
async fn copy(job: &Job<'_>, from: &Stream, to: &Stream, first: Buf, bytes: &mut u64) {
    let mut buf = first;
    let target = job.down.target(Some(job.lease.handle()));
    let stuck = Timer::new(&job.core.deadlines, target);
    let progress = || job.down.timer.arm(Wait::Tunnel, job.settings().tunnel_timeout_ms);
    loop {
        progress();
        *bytes += buf.len() as u64;
        let write_ms = job.listener().write_timeout_ms;
        let written = write_all(to, &mut buf, || stuck.arm(Wait::Tunnel, write_ms)).await;
        stuck.disarm();
        if written.is_err() {
            from.shutdown(Shutdown::Both);
            to.shutdown(Shutdown::Both);
            return;
        }
        // A quiet tunnel keeps no buffer.
        drop(buf);
        progress();
        if from.readable().await.is_err() {
            from.shutdown(Shutdown::Both);
            to.shutdown(Shutdown::Both);
            return;
        }
        let (read, back) = from.read(Buf::for_head()).await;
        buf = back;
        match read {
            Ok(count) if count > 0 => {}
            Ok(_) => return to.finish().await,
            Err(_) => {
                from.shutdown(Shutdown::Both);
                to.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

/// Counts a tunnel as long as it is open.
struct Open<'a>(&'a WorkerCounters);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.tunnels.decrement();
    }
}
