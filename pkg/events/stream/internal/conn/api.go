package conn

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// API is the subject of a JetStream API request.
func (c *Conn) API(request string) string {
	if c.APIPrefix != "" {
		return c.APIPrefix + "." + request
	}
	return "$JS.API." + request
}

// APISubject is a subject of JetStream's API, in the server's form for a stream, with the API prefix of this
// connection.
func (c *Conn) APISubject(form, stream string) string {
	on := fmt.Sprintf(form, stream)
	if c.APIPrefix == "" {
		return on
	}
	return c.APIPrefix + strings.TrimPrefix(on, "$JS.API")
}

// askTimeout bounds the server's answer to one request or chunk of a backup.
const askTimeout = time.Minute

// Ask sends a JetStream API request for which the client library has no function.
func (c *Conn) Ask(ctx context.Context, on string, request []byte, answer any, response *server.ApiResponse) error {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := c.NATS.RequestWithContext(asking, on, request)
	if err != nil || len(m.Data) == 0 {
		return err
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("read the answer of the server: %w", err)
	}
	if response.Error != nil {
		return response.Error
	}
	return nil
}
