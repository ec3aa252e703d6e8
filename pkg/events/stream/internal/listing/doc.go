// Package listing lists what a bus has: the logs with their kinds, the controllers with streams, and the durable
// consumers of a stream. It caches the kinds, since a bus lists them every few seconds.
package listing
