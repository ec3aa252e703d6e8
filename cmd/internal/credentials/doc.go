// Package credentials makes and hands out the secrets of an installation's bus: the users' passwords, the
// authority and certificate of the server, the keys that sign turns and outcomes, and the key of a notary.
// What exists in the directory is kept. Its commands are millrace bus secrets, bus passwords, signing-keys,
// notary keys, and control-plane bus-keys and bus-address.
package credentials
