// Package notary holds tests of the notary on a real NATS server: with the rights that
// its user is given and no more, through restarts of the server, beside other notaries,
// and with streams that are made anew.
package notary
