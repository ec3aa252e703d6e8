// Package sign says who made a turn or an outcome, so that the right to publish on the bus
// orders no write and opens no fence.
package sign
