// Package plan decides in which order the commands of a turn become requests, what an answer of
// the API server means, and when the writer must read before it writes again. It is pure; package
// apply makes the requests.
//
// A [Plan] is a dialogue about one turn:
//
//	p := plan.New(turn, plan.Options{})
//	for requests := p.Next(); ...; {   // everything that may run now
//		p.Answer(request.Command, response)
//	}
//	results, done := p.Results()       // one result for every command
//
// Order. Commands on one object run in the turn's order; a command after one that did not succeed
// is skipped. Creates of one kind start slowly (1, 2, 4, ...) and stop at the first failure, so
// that a batch that cannot succeed costs O(log n) requests. All other commands run in waves that
// start at 32 and double, and stop at a failure that the rest would share: forbidden, or the API
// server out of reach.
//
// One effect. The writer repeats a request whose answer was lost under the same conditions. The
// API server then refuses what it has already done (the name is taken, the version has moved, the
// object is gone), and a read of the live object tells the command's own effect from another
// client's.
package plan
