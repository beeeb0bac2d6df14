package b

import (
	_ "github.com/resourcestack/autohealer/controllers/b/steps"
	_ "github.com/resourcestack/autohealer/webhooks"
)
