// Package metadata has the parts of a simulated cluster that concern objects of every kind: namespaces
// and their default content, quotas, aggregated roles, and the storage of API servers with its versions
// and migrations. It has what users, administrators and API servers do with them, and what must hold.
package metadata
