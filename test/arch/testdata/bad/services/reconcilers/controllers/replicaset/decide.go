// Package replicaset is a good controller that others should leave alone.
package replicaset // want: is not in the catalogue
