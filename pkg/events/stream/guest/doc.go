// Package guest reads streams for a user who may not create consumers ([Reader]): it asks for messages one by one,
// many at a time, and hears what is published, so that it need not poll. It knows no connection; package stream
// gives it one.
package guest
