// Package watcher records what the API server reports in the logs on the bus. It runs one list and
// watch per kind, however many readers the log has.
//
//	Run ── membership.Run    heartbeats, and whether the API server answers: this decides
//	  │                  which kinds fall to this watcher
//	  ├─── discover      which kinds there are
//	  ├─── reconcile     starts and stops Reflectors, as the other two say
//	  └─── Reflector.Run per kind: session after session (package reflector)
//
// # What a log promises
//
// The log of a kind has the order of the API server's watch. It has no gap, and it has each (uid,
// resourceVersion) once, except for deltas that are marked as repeated (Sync). The position to
// resume from is in the log itself. The position is lost where the API server has forgotten the
// changes after it, or where the bus has lost or damaged a part of the log. The watcher then compares
// a relist with what the log says. It records what changed, records missing objects as gone, and
// records a Gap: changes before the Gap may be missing from the record. Where the API server's storage has gone back, as after the
// restore of a backup, the watcher begins a new epoch and records every object again; a version has
// a meaning only within its epoch. An epoch is the same for all kinds: the watcher that finds out
// tells the other kinds, the other watchers and the writers.
//
// # Damage
//
// Every delta carries a census (how many objects there are after it, and the sum of their hashes)
// and a link to the message that it was stored behind. The watcher compares the log with
// these when a session begins. It looks at the end of the log every ten seconds, or every two minutes
// where nothing has been appended. Readers report what does not fit, and the watcher then compares
// again. A relist repairs the damage: the watcher records what the log lacks or has wrong, and the
// Gap says why and which messages were lost. Where a part of the log cannot be read, or a reader
// reports damage again at once, the watcher records every object again behind it. A scrubber slowly
// reads the whole log. See docs/adr/0009.
//
// # Where readers begin
//
// Every mark names the message since which every existing object has been recorded; a reader that
// wants what exists reads the log from there. When too many messages follow that one, the watcher
// records the oldest objects again (reflector/keyframe.go). See docs/adr/0041.
//
// # More than one watcher
//
// Any number of watchers may run, all of them active. Each kind falls to one of them (package
// membership), and when one comes or goes only the kinds move that have to. The watcher that gets a
// kind resumes where the log ends. The former watcher of the kind stops when it hears of that, or
// when the log refuses its next append: if two watchers believe that a kind is theirs, the log
// accepts only one of them. A watcher that cannot reach the API server leaves its kinds to those
// that can.
//
// # Large objects
//
// The watcher records an object whose body is larger than a message may be in metadata form, and
// the delta's Form says so. If even the metadata is too large, the delta keeps the object's name,
// identity and dates. The watcher drops no object, and a reader that needs the rest sees that it is
// missing.
//
// # Form and version
//
// A kind that is on the bus in full stays so for a watcher that wants its metadata only. In the
// opposite case, and when a kind that is wanted in full is stored in another version, the watcher
// recreates the kind's streams, and their readers begin again.
package watcher
