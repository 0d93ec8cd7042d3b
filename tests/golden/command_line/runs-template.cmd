crun ./hello '${local_rank}' '$local_rank' '$$' '$other' 'a$$b$x${y}'
