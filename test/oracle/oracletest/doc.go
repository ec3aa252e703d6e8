// Package oracletest has what the tests of all groups of controllers share: how worlds are drawn and compared,
// which requests are refused, and the mutants by which the comparisons themselves are tested.
package oracletest
