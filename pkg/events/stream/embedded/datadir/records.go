package datadir

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/highwayhash"
)

// A block that is not packed is a row of records, one for each message:
//
//	4  length of the record; the highest bit says that there are headers
//	8  sequence; its highest bits say that the message has been removed
//	8  time
//	2  length of the subject
//	   subject, and where there are headers 4 bytes of their length; headers, data
//	8  sum of all but the lengths, with the names of stream and block as its key;
//	   headers end with an empty line, which tells that their length is right
//
// The server checks the checksum of a message when a client asks for it. While it starts, it
// trusts the bytes that it reads, and one wrong bit can keep it from ever starting: a bit in a
// sequence, since the server counts all missing sequences before it; and a bit in any message
// of a block with TTLs, which the server scans after an unclean stop. So a Store removes
// damaged messages before the server starts.
const (
	recordHead  = 4 + 8 + 8 + 2
	recordSum   = 8
	headersFlag = 1 << 31
)

// removeDamaged removes damaged records from an uncompressed block, and sets the whole original block
// aside. The links and counts in the other messages tell readers that some are missing.
func (s *Store) removeDamaged(stream, block string, data []byte) error {
	sound, damaged, err := withoutDamaged(data, stream, block)
	if err != nil || damaged == 0 || len(sound) == 0 {
		return err // a block without one valid record may be of another kind of server
	}
	sifted := block + ".sifted"
	if err := os.WriteFile(sifted, sound, 0o600); err != nil {
		return fmt.Errorf("sift %s: %w", block, err)
	}
	// The server's index of the block is stale now; without it the server reads the block
	// again.
	if err := os.Remove(filepath.Join(filepath.Dir(block), "index.db")); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("sift %s: %w", block, err)
	}
	if err := s.quarantine(block, stream+"-"+filepath.Base(block)); err != nil {
		return err
	}
	if err := os.Rename(sifted, block); err != nil {
		return fmt.Errorf("sift %s: %w", block, err)
	}
	s.Log.Error("removed damaged messages from a block, and quarantined the original",
		"stream", stream, "block", filepath.Base(block), "messages", damaged)
	return nil
}

// withoutDamaged is a block without its damaged records. If the start of the next record cannot
// be told, as at the end of a block that was being written, withoutDamaged leaves the rest as it
// is: the server truncates it.
func withoutDamaged(data []byte, stream, block string) (sound []byte, damaged int, err error) {
	key := sha256.Sum256([]byte(stream + "-" + strings.TrimSuffix(filepath.Base(block), ".blk")))
	sum, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return nil, 0, err
	}
	kept := 0 // sound is data[:kept] while nothing is damaged
	for at := 0; ; {
		record, subject, headers := findRecord(data[at:])
		if record == nil {
			return append(data[:kept], data[at:]...), damaged, nil
		}
		end := len(record) - recordSum
		sum.Reset()
		_, _ = sum.Write(record[4 : recordHead-2])
		_, _ = sum.Write(record[recordHead : recordHead+subject])
		_, _ = sum.Write(record[recordHead+subject+headers : end])
		at += len(record)
		if !bytes.Equal(sum.Sum(nil), record[end:]) || headers > 0 && !endOfHeaders(record[recordHead+subject:end]) {
			damaged++
			continue
		}
		kept += copy(data[kept:], record)
	}
}

// endOfHeaders reports whether the headers are as long as the 4 bytes before them say.
func endOfHeaders(lengthHeadersData []byte) bool {
	length, rest := binary.LittleEndian.Uint32(lengthHeadersData), lengthHeadersData[4:]
	return uint64(length) <= uint64(len(rest)) && bytes.HasSuffix(rest[:length], []byte("\r\n\r\n"))
}

// findRecord is the first record of a row, with the lengths of its subject and of the length
// field between subject and headers; nil if there is none.
func findRecord(row []byte) (record []byte, subject, headers int) {
	if len(row) < recordHead+recordSum {
		return nil, 0, 0
	}
	length := binary.LittleEndian.Uint32(row)
	if length&headersFlag != 0 {
		headers = 4
	}
	length &^= headersFlag
	subject = int(binary.LittleEndian.Uint16(row[recordHead-2:]))
	if uint64(length) > uint64(len(row)) || int(length) < recordHead+subject+headers+recordSum {
		return nil, 0, 0
	}
	return row[:length], subject, headers
}
