package archive_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/millrace/millrace/pkg/events/archive"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// Export writes the record of a bus into one file; New reads it again.
func ExampleExport() {
	ctx := context.Background()
	b := memory.New(memory.Options{})
	defer b.Close()
	if err := b.EnsureKind(ctx, kinds.Pods.Kind); err != nil {
		fmt.Println(err)
	}
	var file bytes.Buffer
	if _, err := archive.Export(ctx, b, &file, archive.Selection{}); err != nil {
		fmt.Println(err)
	}
	from, err := archive.New("record", bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer from.Close()
	found, err := from.Kinds(ctx)
	fmt.Println(found, err)
	// Output: [pods/v1] <nil>
}
