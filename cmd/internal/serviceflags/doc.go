// Package serviceflags has the flags of the services, and makes their parts of a process: watcher, reconcilers,
// writer, shadows and notary. The flags of signing keys and of Leader Migration are here, too, since they say
// how writer and reconcilers act. The rights that each service needs on the API server follow from its flags.
package serviceflags
