// Package notary tests the notary on a real NATS server: with the rights of its user and no others, through
// restarts of the server, beside other notaries, and with streams that are created anew.
package notary
