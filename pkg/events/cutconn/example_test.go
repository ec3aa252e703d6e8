package cutconn_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/millrace/millrace/pkg/events/cutconn"
)

// While a connection is cut, writing to it seems to work, and no answer comes.
func ExampleDialer() {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer echo.Close()
	go func() {
		c, err := echo.Accept()
		if err == nil {
			_, _ = io.Copy(c, c)
		}
	}()
	var d cutconn.Dialer
	c, err := d.Dial(context.Background(), "tcp", echo.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	ask := func(bound time.Duration) {
		n, err := c.Write([]byte("ping"))
		_ = c.SetReadDeadline(time.Now().Add(bound))
		answer := make([]byte, 4)
		_, unread := io.ReadFull(c, answer)
		fmt.Println(n, err, string(answer[:1]) == "p", os.IsTimeout(unread))
	}
	ask(time.Minute)
	d.Cut()
	ask(50 * time.Millisecond)
	d.Mend()
	ask(time.Minute)
	// Output:
	// 4 <nil> true false
	// 4 <nil> false true
	// 4 <nil> true false
}
