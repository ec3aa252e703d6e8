// Package plan is the writer's judgement: in which order the commands of a turn
// become requests, what an answer of the API server means, and when to look
// before writing again. It is pure; package apply makes the requests.
//
// A [Plan] is a dialogue about one turn:
//
//	p := plan.New(turn, plan.Options{})
//	for requests := p.Next(); ...; {   // everything that may run now
//		p.Answer(request.Command, response)
//	}
//	results, done := p.Results()       // one result for every command
//
// Order. Commands on one object run in the turn's order, and what follows a
// command that did not succeed is skipped. Creates of one kind start slowly (1,
// 2, 4, ...) and stop at the first failure, so that a batch that cannot succeed
// costs O(log n) requests. Everything else runs in waves that start at 32 and
// double, and stops at a failure that the rest would share: forbidden, or the
// API server out of reach.
//
// One effect. A request whose answer was lost is made again under the same
// conditions; the API server then refuses what it has already done (the name is
// taken, the version has moved, the object is gone), and a look at the live
// object tells our own effect from another client's.
package plan
