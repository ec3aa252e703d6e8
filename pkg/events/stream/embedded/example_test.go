package embedded_test

import (
	"context"
	"fmt"
	"os"

	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
)

// Start a server that only this process can use, and connect to it.
func ExampleServe() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	server, err := embedded.Serve(embedded.Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	b, err := stream.Connect(context.Background(), stream.Options{Server: server})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Close())
	// Output: <nil>
}
