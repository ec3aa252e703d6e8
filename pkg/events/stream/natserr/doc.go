// Package natserr says what an error of NATS means: its name in package bus ([Translate]), whether a retry can help
// ([IsPermanent], [IsPassing], [Retry]), why no connection came about ([NoServerReason], [ExplainTLS]), and that the
// server's permissions forbid a request ([Refusal]).
package natserr
