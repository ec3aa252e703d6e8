package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/pkg/events/subject"
)

// unreadableStreamsError names the streams on disk that the server cannot read.
type unreadableStreamsError struct {
	streams []string
	why     string
}

func (e *unreadableStreamsError) Error() string {
	return fmt.Sprintf("damaged streams %s (%s): restore them from a backup, or remove their folders to begin them anew",
		strings.Join(e.streams, ", "), e.why)
}

// quarantineFolder is the folder beside the store for unreadable streams and blocks.
const quarantineFolder = "damaged"

// closedFile exists in a store that was closed cleanly, until the store is opened again.
const closedFile = "closed"

// wasClosedCleanly reports whether the store was closed cleanly, and removes the note of that.
func (s *Server) wasClosedCleanly() (inOrder bool, err error) {
	err = os.Remove(filepath.Join(s.options.Dir, closedFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// markClosed notes that the store was closed cleanly.
func (s *Server) markClosed() error {
	return os.WriteFile(filepath.Join(s.options.Dir, closedFile), nil, 0o600)
}

// checkBlocks removes damaged messages from uncompressed blocks. In a store that was not closed
// cleanly it also sets aside blocks that cannot be decompressed: the server then reads streams
// from end to end, and deletes a whole stream if it fails at one block; without the block it
// serves the rest. A server of a cluster may delete the stream, because the other replicas have
// all of it.
func (s *Server) checkBlocks() error {
	inOrder, err := s.wasClosedCleanly()
	if err != nil || s.options.clustered() {
		return err
	}
	names, err := s.options.streamsOnDisk()
	if err != nil {
		return err
	}
	var checks errgroup.Group
	checks.SetLimit(runtime.GOMAXPROCS(0))
	for _, name := range names {
		blocks, err := filepath.Glob(filepath.Join(s.folder(name), "msgs", "*.blk"))
		if err != nil {
			return errors.Join(err, checks.Wait())
		}
		for _, block := range blocks {
			checks.Go(func() error { return s.checkBlock(name, block, inOrder) })
		}
	}
	return checks.Wait()
}

func (s *Server) checkBlock(stream, block string, inOrder bool) error {
	isPacked, err := isCompressed(block)
	if err != nil || isPacked && inOrder {
		return err
	}
	data, err := os.ReadFile(block)
	if err != nil {
		return err
	}
	if !isPacked {
		return s.removeDamaged(stream, block, data)
	}
	why := canDecompress(data)
	if why == nil {
		return nil
	}
	if err := s.quarantine(block, stream+"-"+filepath.Base(block)); err != nil {
		return err
	}
	s.options.Log.Error("quarantined a damaged block of messages", "stream", stream, "block", filepath.Base(block), "because", why)
	return nil
}

// isCompressed tells by its first bytes whether a block is compressed.
func isCompressed(block string) (bool, error) {
	file, err := os.Open(block)
	if err != nil {
		return false, err
	}
	defer file.Close()
	head := make([]byte, 16)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	var packing server.CompressionInfo
	_, err = packing.UnmarshalMetadata(head[:n])
	return err != nil || packing.Algorithm != server.NoCompression, nil
}

// canDecompress reports whether a compressed block can be decompressed.
func canDecompress(data []byte) error {
	var packing server.CompressionInfo
	header, err := packing.UnmarshalMetadata(data)
	if err == nil {
		_, err = packing.Algorithm.Decompress(data[header:])
	}
	return err
}

// folder is the folder of a stream on disk.
func (s *Server) folder(name string) string {
	return filepath.Join(s.options.streams(), name)
}

// quarantine moves a damaged file or folder to quarantineFolder, under an unused name.
func (s *Server) quarantine(from, name string) error {
	aside := filepath.Join(s.options.Dir, quarantineFolder)
	if err := os.MkdirAll(aside, 0o750); err != nil {
		return fmt.Errorf("set %s aside: %w", from, err)
	}
	to := filepath.Join(aside, name+"-"+time.Now().UTC().Format("20060102T150405.000Z"))
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("set %s aside: %w", from, err)
	}
	return nil
}

// quarantineStreams moves the folders of damaged logs aside, where an operator can still
// inspect them, and reports whether a start without them makes sense. The API server still has
// their content: the watcher lists everything and records a gap. No other component has turns
// and outcomes, so an operator must decide about those.
func (s *Server) quarantineStreams(err error) (worthwhile bool, _ error) {
	var damaged *unreadableStreamsError
	if !errors.As(err, &damaged) {
		return false, nil
	}
	for _, name := range damaged.streams {
		if _, ours := subject.KindOfStream(name); !ours {
			return false, nil
		}
	}
	for _, name := range damaged.streams {
		err := s.quarantine(s.folder(name), name)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the server removes some by itself
			return false, err
		}
		s.options.Log.Error("quarantined a damaged stream, and created an empty one", "stream", name, "because", damaged.why)
	}
	return true, nil
}
