package a

import (
	"context"

	_ "github.com/resourcestack/autohealer/apis/v1"
	_ "github.com/resourcestack/autohealer/controllers/b"
	_ "github.com/resourcestack/autohealer/internal/actuate"
)

func write(ctx context.Context) {
	_ = r.Client.Delete(ctx, node)
	_ = c.Status().Update(ctx, node)
	_ = clients.nodes().Patch(context.Background(), "n", patch)
	queue.Delete(item)
	cache.Update(key, ctx)
}
