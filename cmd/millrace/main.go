// Command millrace runs Kubernetes' controllers as event-sourced services on
// NATS JetStream: all of them in one process, or one service each.
package main

import (
	"os"

	"github.com/millrace/millrace/cmd/internal/command"
)

func main() { os.Exit(command.Main(os.Args[1:])) }
