// Package exemption has the table of all differences that the comparisons leave out, or that no world has, with
// the reason why each is no difference to users. It counts how often each is used.
package exemption
